#include "decoders/speculative.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "decoders/session.h"

namespace specdec {

SpeculativeDecoding::SpeculativeDecoding(LanguageModel& target, std::unique_ptr<Drafter> drafter,
                                         std::unique_ptr<Verifier> verifier,
                                         std::unique_ptr<DraftLength> draft_length)
    : target_(target),
      drafter_(std::move(drafter)),
      verifier_(std::move(verifier)),
      draft_length_(std::move(draft_length)) {
  const Needs needs = drafter_->needs();
  if (needs.internals && target_.internals() == nullptr) {
    throw ConfigError(
        "this drafter lives on the target's embeddings, head and cache, and this target does not "
        "give them: choose a drafter that only needs its tokens (draft_model, prompt_lookup)");
  }
  drafter_->check(target_);
  options_.capture_layers = needs.capture_layers;
  wants_features_ = needs.internals || !needs.capture_layers.empty();
}

Generation SpeculativeDecoding::generate(const Request& request) {
  verifier_->check(request.sampling);
  drafter_->reset();
  draft_length_->reset();
  Session session(request, target_);
  const ForwardResult prompt_result = target_.prefill(request.prompt, options_);
  session.commit_prefill(prompt_result.logits.select(0, 0));
  StepResult step;
  while (!session.finished()) {
    const bool first = step.draft.tokens.empty();
    step.draft = propose(session, first ? nullptr : &step, prompt_result);
    session.drafted();
    step.result = target_.verify(step.draft, options_);
    // Reading the logits back waits for the device, so it belongs to the forward's time.
    const Tensor logits = step.result.logits.cpu();
    session.verified();
    step.verdict = verifier_->judge(step.draft, session.target_probs(step.draft, logits),
                                    session.random(Purpose::kVerify));
    target_.keep(step.verdict.path);
    draft_length_->observe(step.draft.proposed(),
                           static_cast<int64_t>(step.verdict.path.size()) - 1);
    session.commit(step.draft, step.verdict);
  }
  return std::move(session).finish();
}

Draft SpeculativeDecoding::propose(Session& session, const StepResult* last_step,
                                   const ForwardResult& prompt_result) {
  const auto context_tokens = static_cast<int64_t>(session.committed().size());
  const int64_t max_tokens =
      std::min(draft_length_->next(context_tokens), session.max_draft_tokens());
  const DraftContext context{.committed = session.committed(),
                             .last_step = last_step,
                             .prompt_result = wants_features_ ? &prompt_result : nullptr,
                             .random = session.random(Purpose::kDraft),
                             .sampling = session.sampling(),
                             .grammar = nullptr,
                             .max_tokens = max_tokens};
  if (max_tokens < 1) {
    drafter_->skip(context);
    return Draft::root(session.newest());
  }
  Draft draft = drafter_->propose(context);
  // A draft that is too long cannot be cut here: dropping a token that was drawn changes the law.
  SPECDEC_CHECK(draft.size() > 0 && draft.tokens.front() == session.newest(),
                "a draft's root is the newest committed token");
  SPECDEC_CHECK(draft.proposed() <= max_tokens, "the drafter proposed {} tokens where {} fit",
                draft.proposed(), max_tokens);
  return draft;
}

}  // namespace specdec
