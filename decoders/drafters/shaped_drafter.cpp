#include "decoders/drafters/shaped_drafter.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "decoders/draft_grammar.h"

namespace specdec {

Draft ShapedDrafter::propose(const DraftContext& context) {
  const DraftLimits wanted = context.shape.next(std::ssize(context.committed));
  DraftContext own = context;
  own.max_depth = std::min(wanted.depth, context.max_depth);
  own.max_tokens = std::min(wanted.tokens, context.max_tokens);
  own.max_branches = wanted.branches;
  if (own.max_branches == 1) {
    own.max_tokens = std::min(own.max_tokens, own.max_depth);
  }
  if (own.max_tokens < 1 || own.max_depth < 1) {
    own.max_tokens = 0;
    drafter_.skip(own);
    return Draft::root(context.committed.back());
  }
  Draft draft = drafter_.propose(own);
  // A draft that is too long cannot be cut here: dropping a token that was drawn changes the
  // distribution.
  SPECDEC_CHECK(draft.size() > 0 && draft.tokens.front() == context.committed.back(),
                "a draft's root is the newest committed token");
  SPECDEC_CHECK(draft.proposed() <= own.max_tokens, "the drafter proposed {} tokens where {} fit",
                draft.proposed(), own.max_tokens);
  SPECDEC_CHECK(draft.depth() <= own.max_depth,
                "the drafter proposed a path longer than the {} tokens that fit", own.max_depth);
  return context.grammar != nullptr && !drafter_.reads_rejected()
             ? without_forbidden(std::move(draft), *context.grammar)
             : draft;
}

}  // namespace specdec
