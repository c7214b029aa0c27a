#include "decoders/step_draft.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/stopwatch.h"
#include "decoders/draft_checks.h"
#include "decoders/draft_grammar.h"
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

/// The newest token and those of the text that the grammar forces.
Draft forced_text(const DraftContext& context, const Request& request,
                  const GrammarMatcher* place) {
  const Token newest = context.committed.back();
  if (place == nullptr || !request.constraint.forced || context.max_depth < 1) {
    return Draft::root(newest);
  }
  const TokenSpan output = context.committed.subspan(request.prompt.size());
  return forced_chain(newest,
                      forced_text_tokens(*place, request.tokenizer, output, context.max_depth),
                      request.sampling);
}

/// The drafter's part, after the chain.
Draft draft_after(const Draft& chain, Drafter& drafter, const DraftContext& context) {
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
  own.max_tokens -= chain.proposed();
  own.max_depth -= chain.proposed();
  return planned_draft(drafter, own);
}

bool reads_features(const Drafter& drafter) {
  const Needs needs = drafter.needs();
  return needs.internals || !needs.capture_layers.empty();
}

}  // namespace

void StepDraft::observe(DraftShape& shape, const Draft& verified,
                        const VerifyResult& result) const {
  if (!planned || std::ssize(result.path) <= forced) {
    return;
  }
  VerifyResult own{.path = {result.path.begin() + forced, result.path.end()}, .next = result.next};
  for (int64_t& node : own.path) {
    node -= forced;
  }
  shape.observe(part_from(verified, forced), own);
}

Draft planned_draft(Drafter& drafter, const DraftContext& context) {
  check_needs(drafter.needs(), context);
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
    drafter.skip(own);
    return Draft::root(context.committed.back());
  }
  Draft draft = drafter.propose(own);
  check_draft(draft, own);
  if (context.grammar == nullptr || drafter.reads_rejected()) {
    return draft;
  }
  const ScopedSeconds timer(context.mask_seconds);
  return without_forbidden(std::move(draft), *context.grammar, context.sampling);
}

StepDraft step_draft(Drafter& drafter, const DraftContext& context, const Request& request,
                     const GrammarMatcher* place) {
  Draft chain = forced_text(context, request, place);
  const int64_t forced = chain.proposed();
  if (forced == 0) {
    return {.draft = planned_draft(drafter, context)};
  }
  if (reads_features(drafter)) {
    DraftContext own = context;
    own.max_tokens = 0;
    drafter.skip(own);
    return {.draft = std::move(chain), .forced = forced, .planned = false};
  }
  const Draft tail = draft_after(chain, drafter, context);
  return {.draft = joined(std::move(chain), tail), .forced = forced};
}

}  // namespace specdec
