#pragma once
#include "decoders/verifier.h"

namespace specdec {

/// Speculative sampling: the output follows the target's distribution exactly, whatever the drafter
/// proposes.
///
/// A drafted token x is accepted with probability min(1, p(x) / q(x)), p the target's distribution
/// and q the distribution that x was drawn from; after a rejection p becomes its residual
/// norm(max(p - q, 0)) (Leviathan et al., 2023, arXiv:2211.17192, Algorithm 1; Chen et al., 2023,
/// arXiv:2302.01318). A token chosen deterministically has all of q: it is accepted with p(x), and
/// the residual is p without x. In a tree the children of a node are tried in order; siblings drawn
/// without replacement each have q without those before them (recursive rejection sampling: Miao et
/// al., 2023, arXiv:2305.09781; Jeon et al., 2024, arXiv:2402.14160).
class RejectionVerifier final : public Verifier {
 public:
  DeviceRule device_rule() const override { return DeviceRule::kRejection; }
  VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t position,
                      Randomness& random) const override;
};

}  // namespace specdec
