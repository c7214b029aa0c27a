#pragma once
#include "decoders/verifier.h"

namespace specdec {

struct TypicalOptions {
  double epsilon = 0.09;  ///< a token this likely is always accepted
  double delta = 0.3;     ///< times exp(-entropy): what is accepted where the target is unsure
};

/// Typical acceptance (Cai et al., 2024, Medusa, arXiv:2401.10774, Section 2.3.1): a drafted token
/// is accepted when the target does not find it unlikely, p(x) >= min(epsilon, delta exp(-H(p))),
/// H the entropy of p in nats. The longest accepted path wins, of equally long ones the more
/// likely; the next token is drawn from p at its end. Needs no distribution of the draft.
///
/// LOSSY: the output follows the draft more than the target's distribution does. Only at
/// temperature 0, where all of p is on one token, does it accept nothing but that one, as
/// exact_match does.
class TypicalVerifier final : public Verifier {
 public:
  /// Throws ConfigError unless both options are in (0, 1].
  explicit TypicalVerifier(const TypicalOptions& options = {});
  VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t position,
                      Randomness& random) const override;

 private:
  TypicalOptions options_;
};

}  // namespace specdec
