#include "decoders/verifiers/sample_match.h"

#include "decoders/verifiers/probs.h"

namespace specdec {

VerifyResult SampleMatchVerifier::verify(const Draft& draft, const Tensor& target_probs,
                                         int64_t position, Randomness& random) const {
  check_probs(draft, target_probs);
  return follow(draft, [&](int64_t node, int64_t depth) {
    random.seek(position + depth, Purpose::kSample);
    return static_cast<Token>(random.draw(row_of(target_probs, node)));
  });
}

}  // namespace specdec
