#include "decoders/drafters/forced_tokens_drafter.h"

#include <optional>
#include <utility>

#include "core/error.h"
#include "grammar/forced_tokens.h"

namespace specdec {
namespace {

/// `tail`, whose root is the last token of the chain, after the chain.
Draft joined(Draft chain, const Draft& tail) {
  const int64_t ahead = chain.proposed();
  chain.probs = tail.probs;
  chain.child_probs.back() = tail.child_probs.front();
  for (size_t node = 1; node < tail.tokens.size(); ++node) {
    chain.add(tail.tokens[node], tail.parents[node] + ahead);
    chain.child_probs.back() = tail.child_probs[node];
  }
  return chain;
}

/// The part of a draft from `node` of its chain on.
Draft part_from(Draft draft, int64_t node) {
  draft.tokens.erase(draft.tokens.begin(), draft.tokens.begin() + node);
  draft.parents.erase(draft.parents.begin(), draft.parents.begin() + node);
  draft.child_probs.erase(draft.child_probs.begin(), draft.child_probs.begin() + node);
  for (int64_t& parent : draft.parents) {
    parent -= node;
  }
  draft.parents.front() = -1;
  return draft;
}

}  // namespace

ForcedTokensDrafter::ForcedTokensDrafter(Drafter& drafter, const Request& request,
                                         const GrammarMatcher* place)
    : drafter_(drafter), request_(request), place_(place) {
  const Needs needs = drafter.needs();
  reads_features_ = needs.internals || !needs.capture_layers.empty();
}

std::vector<Token> ForcedTokensDrafter::forced(const DraftContext& context) const {
  if (place_ == nullptr || !request_.constraint.forced || context.max_depth < 1) {
    return {};
  }
  const TokenSpan output = context.committed.subspan(request_.prompt.size());
  return find_forced_tokens(*place_, request_.tokenizer, output, context.max_depth);
}

Draft ForcedTokensDrafter::propose(const DraftContext& context) {
  Draft chain = Draft::root(context.committed.back());
  for (const Token token : forced(context)) {
    chain.add(token, chain.size() - 1);
  }
  forced_ = chain.proposed();
  skipped_ = forced_ > 0 && reads_features_;
  if (forced_ == 0) {
    return drafter_.propose(context);
  }
  if (skipped_) {
    DraftContext own = context;
    own.max_tokens = 0;
    drafter_.skip(own);
    return chain;
  }
  const Draft tail = propose_after(chain, context);
  return joined(std::move(chain), tail);
}

Draft ForcedTokensDrafter::propose_after(const Draft& chain, const DraftContext& context) {
  const std::vector<Token> tokens = chain.history(context.committed, chain.size() - 1);
  std::optional<GrammarMatcher> place;
  if (context.grammar != nullptr) {
    place = *context.grammar;
    for (const Token token : TokenSpan(chain.tokens).subspan(1)) {
      SPECDEC_CHECK(place->accept(token), "a forced token that the grammar forbids");
    }
  }
  DraftContext own = context;
  own.committed = tokens;
  own.grammar = place ? &*place : nullptr;
  own.max_tokens -= forced_;
  own.max_depth -= forced_;
  return drafter_.propose(own);
}

void ForcedTokensDrafter::observe(DraftShape& shape, const Draft& draft,
                                  const VerifyResult& result) const {
  if (skipped_ || std::ssize(result.path) <= forced_) {
    return;
  }
  VerifyResult own{.path = {result.path.begin() + forced_, result.path.end()}, .next = result.next};
  for (int64_t& node : own.path) {
    node -= forced_;
  }
  shape.observe(part_from(draft, forced_), own);
}

}  // namespace specdec
