#include "decoders/speculative.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "core/error.h"
#include "decoders/logits_processor.h"
#include "decoders/session.h"
#include "decoders/shapes/trace_shape.h"
#include "decoders/step_draft.h"

namespace specdec {
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
  options_.hidden = needs.internals ? Hidden::kAll : Hidden::kNone;
  prompt_options_ = options_;
  options_.keep_hidden = needs.on_device;
  if (needs.internals && !needs.prompt_states) {
    prompt_options_.hidden = Hidden::kScored;
  }
  wants_features_ = needs.internals || !needs.capture_layers.empty();
  wants_logits_ = needs.logits;
}

void SpeculativeDecoding::check(const Request& request) const {
  verifier_->check(request.sampling);
  require_config(!(wants_features_ && request.prompt_logits.defined()),
                 "this drafter continues the target's hidden states of the prompt, which a prefill "
                 "gives: leave prompt_logits out, or choose a drafter that reads tokens alone "
                 "(draft_model, prompt_lookup)");
  if (!verifier_->accepts_impossible()) {
    return;
  }
  require_config(
      request.constraint.grammar == nullptr,
      "this verifier accepts tokens that the target's distribution gives no mass, so its output "
      "would leave the grammar; use another verifier, or decode without a grammar");
  require_config(
      request.weights == nullptr,
      "this verifier accepts tokens that the target's distribution gives no mass, so its output "
      "would break the rule of the request's weights; use another verifier, or leave weights out");
}

Generation SpeculativeDecoding::generate(const Request& request) {
  check(request);
  drafter_->reset();
  shape_->reset();
  Session session(request, target_);
  ForwardOptions options = options_;
  options.logits_use = logits_use(request);
  const bool samples = options.logits_use == LogitsUse::kSampler && !request.sampling.greedy();
  std::optional<ForwardResult> prompt = session.prefill(target_, prompt_options_);
  StepResult step;
  while (!session.finished()) {
    DraftContext context = session.context(*shape_, last(step), features(prompt));
    if (samples) {  // the draft's distributions are read on a device, too
      context.device_random = session.device_random();
    }
    StepDraft drafted = step_draft(*drafter_, context, request, session.grammar());
    step.draft = std::move(drafted.draft);
    prompt.reset();  // a long prompt's features are large; every drafter has seen them now
    session.drafted();
    step.result = {};  // the next one may lie in its memory
    step.result = target_.verify(step.draft, options);
    session.verified();
    step.verified = session.verify(*verifier_, step.draft, step.result);
    target_.commit(step.verified.path);
    drafted.observe(*shape_, step.draft, step.verified);
    session.commit(step.draft, step.verified);
  }
  session.remember(target_);
  return std::move(session).finish();
}

std::optional<DraftTrace> SpeculativeDecoding::trace(const Request& request, TokenSpan output,
                                                     const TraceOptions& options) {
  drafter_->reset();
  TraceShape shape(options);
  Session session(request, target_);
  require_config(!request.prompt_logits.defined(),
                 "a trace reads the prompt itself: leave prompt_logits out");
  std::optional<ForwardResult> prompt = target_.prefill(
      request.prompt, session.prompt_options(prompt_options_), {.embeddings = request.embeddings});
  if (!output.empty()) {
    session.commit_given(output.front());
  }
  StepResult step;
  for (size_t next = 1; next < output.size() && !session.finished(); ++next) {
    shape.follow(output.subspan(next));
    step.draft = planned_draft(*drafter_, session.context(shape, last(step), features(prompt)));
    prompt.reset();
    step.result = target_.verify(step.draft, options_);
    TargetProbs& target_probs = session.target_probs(step.draft, step.result);
    shape.record(step.draft, target_probs);
    // To the drafter this step has rejected all of its draft and corrected it to the text's token.
    step.verified = {.path = {0}, .next = output[next]};
    target_.commit(step.verified.path);
    session.commit_given(output[next]);
  }
  return std::move(shape).finish();
}

LogitsUse SpeculativeDecoding::logits_use(const Request& request) const {
  const LogitsUse use = LogitsProcessor::use(request);
  const bool is_decided_here = use == LogitsUse::kSampler && !request.sampling.greedy() &&
                               verifier_->device_rule() == DeviceRule::kNone;
  return wants_logits_ || is_decided_here ? LogitsUse::kRows : use;
}

const StepResult* SpeculativeDecoding::last(const StepResult& step) {
  return step.draft.tokens.empty() ? nullptr : &step;
}

const ForwardResult* SpeculativeDecoding::features(
    const std::optional<ForwardResult>& prompt) const {
  return prompt && wants_features_ ? &*prompt : nullptr;
}

}  // namespace specdec
