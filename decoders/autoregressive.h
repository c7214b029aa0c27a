#pragma once
#include "core/language_model.h"
#include "decoders/decoding_strategy.h"

namespace specdec {

/// Plain decoding: one token a forward. What everything else is measured against.
class AutoregressiveDecoding final : public DecodingStrategy {
 public:
  /// Borrows the model.
  explicit AutoregressiveDecoding(LanguageModel& target) : target_(target) {}
  Generation generate(const Request& request) override;
  bool can_resume() const override { return true; }

 private:
  LanguageModel& target_;
};

}  // namespace specdec
