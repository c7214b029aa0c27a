#pragma once
#include "decoders/verifier.h"

namespace specdec {

/// The target samples as it would without a draft, and the draft is followed as long as it holds
/// what was sampled: chains and trees, whatever they were drawn or chosen from.
///
/// Each token is drawn with randomness keyed by its own position, exactly as plain sampling draws
/// it (Purpose::kSample), so the output has the very tokens of plain sampling with the same seed.
/// What two drafters do to speed can then be compared on one and the same text. A drafter's draws
/// have a purpose of their own, so they are independent of the target's and the distribution is
/// kept. A token drawn from q is accepted with sum_x p(x) q(x), less than the overlap that
/// rejection reaches; one chosen deterministically with p(x), the same as there.
class SampleMatchVerifier final : public Verifier {
 public:
  DeviceRule device_rule() const override { return DeviceRule::kSampleMatch; }
  VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t position,
                      Randomness& random) const override;
};

}  // namespace specdec
