#include "decoders/speculative.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "decoders/draft_grammar.h"
#include "decoders/session.h"

namespace specdec {
namespace {

/// `tail`, whose root is the last token of the chain, after the chain.
Draft joined(const Draft& chain, Draft tail) {
  const int64_t ahead = chain.proposed();
  if (ahead == 0) {
    return tail;
  }
  Draft draft = chain;
  draft.probs = tail.probs;
  draft.child_probs.back() = tail.child_probs.front();
  for (size_t node = 1; node < tail.tokens.size(); ++node) {
    draft.add(tail.tokens[node], tail.parents[node] + ahead);
    draft.child_probs.back() = tail.child_probs[node];
  }
  return draft;
}

/// The part of a draft from `node` of its chain on.
Draft part_from(const Draft& draft, int64_t node) {
  Draft part = draft;
  part.tokens.erase(part.tokens.begin(), part.tokens.begin() + node);
  part.parents.erase(part.parents.begin(), part.parents.begin() + node);
  part.child_probs.erase(part.child_probs.begin(), part.child_probs.begin() + node);
  for (int64_t& parent : part.parents) {
    parent -= node;
  }
  part.parents.front() = -1;
  return part;
}

}  // namespace

SpeculativeDecoding::SpeculativeDecoding(LanguageModel& target, std::unique_ptr<Drafter> drafter,
                                         std::unique_ptr<Verifier> verifier,
                                         std::unique_ptr<DraftShape> shape)
    : target_(target),
      drafter_(std::move(drafter)),
      verifier_(std::move(verifier)),
      shape_(std::move(shape)) {
  const Needs needs = drafter_->needs();
  if (needs.internals && target_.internals() == nullptr) {
    throw ConfigError(
        "this drafter lives on the target's embeddings, head and cache, and this target does not "
        "give them: choose a drafter that only needs its tokens (draft_model, prompt_lookup)");
  }
  drafter_->check(target_);
  if (drafter_->draws() && !shape_->allows_drawn()) {
    throw ConfigError(
        "this tree leaves nodes out after their siblings were found; over siblings drawn at random "
        "that changes the output's distribution. Let the drafter take its best tokens (sample: "
        "false)");
  }
  if (shape_->branches() && !verifier_->allows_trees()) {
    throw ConfigError("this verifier takes chains only, and this shape drafts trees");
  }
  options_.capture_layers = needs.capture_layers;
  wants_features_ = needs.internals || !needs.capture_layers.empty();
}

Generation SpeculativeDecoding::generate(const Request& request) {
  verifier_->check(request.sampling);
  if (request.constraint.grammar != nullptr && verifier_->accepts_impossible()) {
    throw ConfigError(
        "this verifier accepts tokens that the target's distribution gives no mass, so its output "
        "would "
        "leave the grammar; use another verifier, or decode without a grammar");
  }
  drafter_->reset();
  shape_->reset();
  Session session(request, target_);
  const ForwardResult prompt_result = target_.prefill(request.prompt, options_);
  session.commit_prefill(prompt_result.logits.select(0, 0));
  StepResult step;
  while (!session.finished()) {
    const bool first = step.draft.tokens.empty();
    const Proposal proposal =
        propose(session, *shape_, request, first ? nullptr : &step, prompt_result);
    step.draft = proposal.draft;
    session.drafted();
    step.result = target_.verify(step.draft, options_);
    // Reading the logits back waits for the device, so it belongs to the forward's time.
    const Tensor logits = step.result.logits.cpu();
    session.verified();
    step.verified = verifier_->verify(step.draft, session.target_probs(step.draft, logits),
                                      static_cast<int64_t>(session.committed().size()),
                                      session.random(Purpose::kVerify));
    target_.commit(step.verified.path);
    proposal.observe(*shape_, step.verified);
    session.commit(step.draft, step.verified);
  }
  return std::move(session).finish();
}

DraftTrace SpeculativeDecoding::trace(const Request& request, TokenSpan output,
                                      const TraceOptions& options) {
  drafter_->reset();
  TraceShape shape(options);
  Session session(request, target_);
  const ForwardResult prompt_result = target_.prefill(request.prompt, options_);
  if (!output.empty()) {
    session.commit_given(output.front());
  }
  StepResult step;
  for (size_t next = 1; next < output.size() && !session.finished(); ++next) {
    const bool first = step.draft.tokens.empty();
    shape.follow(output.subspan(next));
    const DraftLimits wanted = shape.next(static_cast<int64_t>(session.committed().size()));
    step.draft = ask(session, shape, wanted, Draft::root(session.newest()), request.constraint,
                     first ? nullptr : &step, prompt_result);
    step.result = target_.verify(step.draft, options_);
    shape.record(step.draft, session.target_probs(step.draft, step.result.logits.cpu()));
    // To the drafter this step has rejected all of its draft and corrected it to the text's token.
    step.verified = {.path = {0}, .next = output[next]};
    target_.commit(step.verified.path);
    session.commit_given(output[next]);
  }
  return std::move(shape).finish();
}

void SpeculativeDecoding::Proposal::observe(DraftShape& shape, const VerifyResult& result) const {
  if (!planned || std::ssize(result.path) <= forced) {
    return;  // the drafter's part was not reached
  }
  if (forced == 0) {
    shape.observe(draft, result);
    return;
  }
  VerifyResult own{.path = {result.path.begin() + forced, result.path.end()}, .next = result.next};
  for (int64_t& node : own.path) {
    node -= forced;
  }
  shape.observe(part_from(draft, forced), own);
}

SpeculativeDecoding::Proposal SpeculativeDecoding::propose(Session& session, DraftShape& shape,
                                                           const Request& request,
                                                           const StepResult* last_step,
                                                           const ForwardResult& prompt_result) {
  const Draft forced = session.forced(session.draft_limits().depth, true);
  // A drafter that lives on the target's features knows none of tokens that were not evaluated.
  const bool planned = forced.proposed() == 0 || !wants_features_;
  const auto context = static_cast<int64_t>(session.committed().size()) + forced.proposed();
  Draft tail = ask(session, shape, planned ? shape.next(context) : DraftLimits{}, forced,
                   request.constraint, last_step, prompt_result);
  return {
      .draft = joined(forced, std::move(tail)), .forced = forced.proposed(), .planned = planned};
}

Draft SpeculativeDecoding::ask(Session& session, DraftShape& shape, const DraftLimits& wanted,
                               const Draft& forced, const Constraint& constraint,
                               const StepResult* last_step, const ForwardResult& prompt_result) {
  const int64_t ahead = forced.proposed();
  const DraftLimits fits = session.draft_limits();
  const int64_t fitting = std::min(wanted.tokens, fits.tokens - ahead);
  const int64_t depth = std::min(wanted.depth, fits.depth - ahead);
  const int64_t max_tokens = wanted.branches == 1 ? std::min(fitting, depth) : fitting;
  std::vector<Token> tokens(session.committed().begin(), session.committed().end());
  std::optional<GrammarMatcher> place;
  if (session.grammar() != nullptr && constraint.mask_drafts) {
    place = *session.grammar();
  }
  if (max_tokens >= 1) {  // the forced tokens count as committed; one that skips need not know
    tokens.insert(tokens.end(), forced.tokens.begin() + 1, forced.tokens.end());
    for (size_t i = 1; place && i < forced.tokens.size(); ++i) {
      SPECDEC_CHECK(place->accept(forced.tokens[i]), "a forced token that the grammar forbids");
    }
  }
  const DraftContext context{.committed = tokens,
                             .last_step = last_step,
                             .prompt_result = wants_features_ ? &prompt_result : nullptr,
                             .random = session.random(Purpose::kDraft),
                             .sampling = session.sampling(),
                             .grammar = place ? &*place : nullptr,
                             .max_tokens = max_tokens,
                             .max_depth = depth,
                             .max_branches = wanted.branches,
                             .shape = shape};
  if (max_tokens < 1) {
    drafter_->skip(context);
    return Draft::root(forced.tokens.back());
  }
  Draft draft = drafter_->propose(context);
  // A draft that is too long cannot be cut here: dropping a token that was drawn changes the
  // distribution.
  SPECDEC_CHECK(draft.size() > 0 && draft.tokens.front() == tokens.back(),
                "a draft's root is the newest committed token");
  SPECDEC_CHECK(draft.proposed() <= context.max_tokens,
                "the drafter proposed {} tokens where {} fit", draft.proposed(),
                context.max_tokens);
  const std::vector<int64_t> depths = draft.depths();
  SPECDEC_CHECK(*std::max_element(depths.begin(), depths.end()) <= context.max_depth,
                "the drafter proposed a path longer than the {} tokens that fit",
                context.max_depth);
  return place && !drafter_->reads_rejected() ? without_forbidden(std::move(draft), *place) : draft;
}

}  // namespace specdec
