#pragma once
#include <utility>

#include "decoders/verifier.h"

namespace specdec {

/// What a verifier decides when the target has these distributions, [n, vocab] float64.
inline VerifyResult verify_with(const Verifier& verifier, const Draft& draft, Tensor probs,
                                int64_t position, Randomness& random) {
  TargetProbs target(std::move(probs));
  return verifier.verify(draft, target, position, random);
}

}  // namespace specdec
