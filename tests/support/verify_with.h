#pragma once
#include "decoders/verifier.h"

namespace specdec {

/// What a verifier decides when the target has these distributions, [n, vocab] float64.
inline VerifyResult verify_with(const Verifier& verifier, const Draft& draft, const Tensor& probs,
                                int64_t position, Randomness& random) {
  TargetProbs target(probs);
  return verifier.verify(draft, target, position, random);
}

}  // namespace specdec
