#pragma once
#include <memory>
#include <optional>

#include "core/language_model.h"
#include "decoders/decoding_strategy.h"
#include "decoders/draft_shape.h"
#include "decoders/drafter.h"
#include "decoders/verifier.h"

namespace specdec {

/// Speculative decoding (Leviathan et al., 2023, arXiv:2211.17192, Algorithm 1): a drafter proposes
/// tokens, one forward of the target gives the distributions at all of them, a verifier decides.
class SpeculativeDecoding final : public DecodingStrategy {
 public:
  /// Borrows the target. Throws ConfigError, with the reason, when the parts do not go together.
  SpeculativeDecoding(LanguageModel& target, std::unique_ptr<Drafter> drafter,
                      std::unique_ptr<Verifier> verifier, std::unique_ptr<DraftShape> shape);
  /// Decodes. Throws ConfigError when the verifier does not allow the request's sampling or its
  /// grammar.
  Generation generate(const Request& request) override;
  void forget() override { drafter_->forget(); }
  bool can_resume() const override { return true; }
  std::optional<DraftTrace> trace(const Request& request, TokenSpan output,
                                  const TraceOptions& options) override;

 private:
  /// Refuses a request that the verifier does not allow.
  void check(const Request& request) const;
  /// What is read of the logits of a request's drafts.
  LogitsUse logits_use(const Request& request) const;
  /// The step before; nullptr before the first.
  static const StepResult* last(const StepResult& step);
  /// The prompt's features, as long as they are there, for a drafter that needs them.
  const ForwardResult* features(const std::optional<ForwardResult>& prompt) const;

  LanguageModel& target_;
  std::unique_ptr<Drafter> drafter_;
  std::unique_ptr<Verifier> verifier_;
  std::unique_ptr<DraftShape> shape_;
  bool wants_features_ = false;
  bool wants_logits_ = false;
  ForwardOptions options_;         // of the target's forwards: what the drafter needs
  ForwardOptions prompt_options_;  // the same of the prompt's
};

}  // namespace specdec
