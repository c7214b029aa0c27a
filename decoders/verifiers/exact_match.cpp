#include "decoders/verifiers/exact_match.h"

#include "core/error.h"
#include "decoders/verifiers/probs.h"

namespace specdec {

void ExactMatchVerifier::check(const SamplingParams& sampling) const {
  if (!sampling.greedy()) {
    throw ConfigError(fmt::format(
        "verifier exact_match compares with the target's best token, so it is greedy; "
        "at temperature {} its output would not follow the target's distribution. Use verifier "
        "rejection, or temperature 0",
        sampling.temperature));
  }
}

VerifyResult ExactMatchVerifier::verify(const Draft& draft, TargetProbs& target,
                                        int64_t /*position*/, Randomness& /*random*/) const {
  check_probs(draft, target);
  return follow(draft, [&](int64_t node, int64_t /*depth*/) { return target.best(node); });
}

}  // namespace specdec
