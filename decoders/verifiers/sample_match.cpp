#include "decoders/verifiers/sample_match.h"

#include "decoders/verifiers/probs.h"

namespace specdec {

VerifyResult SampleMatchVerifier::verify(const Draft& draft, TargetProbs& target, int64_t position,
                                         Randomness& random) const {
  check_probs(draft, target);
  return follow(draft, [&](int64_t node, int64_t depth) {
    random.seek(position + depth, Purpose::kSample);
    return target.draw(node, random);
  });
}

}  // namespace specdec
