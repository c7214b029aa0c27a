#pragma once
#include "decoders/verifier.h"

namespace specdec {

/// Greedy verification: follows the draft, chain or tree, as long as it holds the target's best
/// token; then takes that token itself. Lossless for greedy decoding only.
class ExactMatchVerifier final : public Verifier {
 public:
  /// Refuses a temperature above 0.
  void check(const SamplingParams& sampling) const override;
  VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t position,
                      Randomness& random) const override;
};

}  // namespace specdec
