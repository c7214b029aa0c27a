#pragma once
#include <algorithm>
#include <map>

#include "decoders/drafter.h"

namespace specdec {

/// Drafts what followed each token the last time.
class BigramDrafter final : public Drafter {
  Draft propose(const DraftContext& context) override {
    std::map<Token, Token> next;
    for (size_t i = 1; i < context.committed.size(); ++i) {
      next[context.committed[i - 1]] = context.committed[i];
    }
    Draft draft = Draft::root(context.committed.back());
    const int64_t length = std::min(context.max_tokens, context.max_depth);
    while (draft.proposed() < length && next.contains(draft.tokens.back())) {
      draft.add(next[draft.tokens.back()], draft.size() - 1);
    }
    return draft;
  }
};

}  // namespace specdec
