#pragma once
#include <vector>

#include "decoders/verifier.h"

namespace specdec {

/// Accepts by decree: the drafted token at depth i with probability acceptance[i - 1], once those
/// before it are accepted, whatever the target thinks of it. The next token is the target's. Of
/// siblings only the first can be accepted. With SyntheticDrafter it measures what speculation
/// costs and would bring at a given acceptance, without a drafter that reaches it.
///
/// LOSSY: the accepted tokens mean nothing.
class SyntheticVerifier final : public Verifier {
 public:
  /// Probabilities by depth; the last one holds for all deeper tokens. Throws ConfigError when
  /// there is none, or one outside [0, 1].
  explicit SyntheticVerifier(std::vector<double> acceptance);
  bool accepts_impossible() const override { return true; }
  VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t position,
                      Randomness& random) const override;

 private:
  std::vector<double> acceptance_;
};

}  // namespace specdec
