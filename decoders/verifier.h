#pragma once
#include "core/device_sampler.h"
#include "core/draft.h"
#include "core/randomness.h"
#include "core/sampling.h"
#include "core/types.h"
#include "decoders/target_probs.h"

namespace specdec {

/// Decides which drafted tokens stay.
class Verifier {
 public:
  virtual ~Verifier() = default;
  /// Refuses sampling under which the output would not follow the target's distribution: throws
  /// ConfigError with the reason.
  virtual void check(const SamplingParams& sampling) const { (void)sampling; }
  /// False when it verifies chains only.
  virtual bool allows_trees() const { return true; }
  /// True when it may accept a token to which the target's distribution gives no mass; it is
  /// refused under a grammar and under a request's weights.
  virtual bool accepts_impossible() const { return false; }
  /// The verifier's rule on the device that made the target's logits, which then stay there. kNone:
  /// this verifier looks at the target's distributions itself.
  virtual DeviceRule device_rule() const { return DeviceRule::kNone; }
  /// Verifies a draft. `target`: the target's distributions after the draft's nodes. `position`: of
  /// the token after the root, in the sequence. `random` is already at Purpose::kVerify of it.
  virtual VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t position,
                              Randomness& random) const = 0;
};

}  // namespace specdec
