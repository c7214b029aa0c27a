#pragma once
#include "decoders/verifier.h"

namespace specdec {

struct ThresholdOptions {
  double single = 1.0;  ///< a token this likely is always accepted
  double acc = 1.0;     ///< siblings are accepted with their mass so far divided by it
};

/// SGLang's acceptance thresholds (speculative_accept_threshold_single and _acc of its
/// target-only tree sampling): of a node's children, tried in order, one is accepted when p(x) >=
/// single, or when one uniform number of the node is at most the children's mass so far / acc. When
/// none is, the next token is drawn from p without them. Needs no distribution of the draft.
///
/// LOSSY below 1, by as much as the thresholds are lower. With both at 1 the distribution is the
/// target's; at temperature 0 only the target's token is ever accepted.
class ThresholdVerifier final : public Verifier {
 public:
  /// Throws ConfigError unless both options are in (0, 1].
  explicit ThresholdVerifier(const ThresholdOptions& options = {});
  VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t position,
                      Randomness& random) const override;

 private:
  ThresholdOptions options_;
};

}  // namespace specdec
