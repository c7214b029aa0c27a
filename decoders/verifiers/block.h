#pragma once
#include "decoders/verifier.h"

namespace specdec {

/// Block verification of chains (Sun et al., 2025, arXiv:2403.10444, Algorithm 2): the output
/// follows the target's distribution exactly, and no other rule of this kind accepts more tokens on
/// average; never fewer than RejectionVerifier.
///
/// With p the target's distributions, q the draft's and x_1 ... x_n the drafted tokens: w_0 = 1,
/// w_i = min(1, w_{i-1} p(x_i) / q(x_i)); S_i = sum_x max(w_i p(x) - q(x), 0) at the place after i
/// tokens; the first i tokens are accepted with h_i = S_i / (S_i + 1 - w_i), and h_n = w_n, for the
/// largest i that passes. The next token comes from norm(max(w_i p - q, 0)), or from p after all n.
/// A token chosen deterministically has all of q.
class BlockVerifier final : public Verifier {
 public:
  bool allows_trees() const override { return false; }
  DeviceRule device_rule() const override { return DeviceRule::kBlock; }
  /// InternalError for a draft that branches.
  VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t position,
                      Randomness& random) const override;
};

}  // namespace specdec
