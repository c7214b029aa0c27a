#include "decoders/verifiers/rejection.h"

#include <optional>

#include "core/kernels/device/verify.h"
#include "decoders/verifiers/probs.h"

namespace specdec {
namespace {

/// A draft with p and q at the place that was reached, while the children there are tried one after
/// the other.
class RejectionTrial {
 public:
  RejectionTrial(const Draft& draft, TargetProbs& target)
      : draft_(draft), probs_(target), walk_(draft) {}

  int32_t child_after(int32_t node, int32_t last) const { return walk_.child_after(node, last); }
  void enter(int32_t node) {
    walk_.enter(node);
    target_ = probs_.after(node);
    drafted_.reset();
    const TokenProbs* drawn_from = draft_.drawn_from(node);
    if (drawn_from != nullptr && child_after(node, node) >= 0) {
      drafted_ = *drawn_from;
    }
  }
  double target(int32_t child) const { return target_[walk_.token(child)]; }
  double drafted(int32_t child) const {
    return drafted_mass(drafted_ ? &*drafted_ : nullptr, walk_.token(child));
  }
  bool reject(int32_t child) {
    const Token token = walk_.token(child);
    if (is_first_of_several(child)) {  // whose residuals all read these
      target_ = target_.stored();
      if (drafted_) {
        drafted_ = drafted_->stored();
      }
    }
    const TokenProbs rest =
        residual(target_, drafted_ ? *drafted_ : TokenProbs::one_hot(token, target_.vocab_size()));
    if (drafted_) {
      const TokenProbs others = drafted_->without(token);
      drafted_ = others.sum() > 0.0 ? others.normalised() : others;
    }
    if (!(rest.sum() > 0.0)) {
      return false;
    }
    target_ = rest.normalised();
    return true;
  }

  const std::vector<int64_t>& path() const { return walk_.path(); }
  /// What is left of the target's distribution.
  const TokenProbs& distribution() const { return target_; }

 private:
  bool is_first_of_several(int32_t child) const {
    const auto node = static_cast<int32_t>(draft_.parents[static_cast<size_t>(child)]);
    return child_after(node, node) == child && child_after(node, child) >= 0;
  }

  const Draft& draft_;
  TargetProbs& probs_;
  DraftWalk walk_;
  TokenProbs target_;
  std::optional<TokenProbs> drafted_;
};

}  // namespace

VerifyResult RejectionVerifier::verify(const Draft& draft, TargetProbs& target,
                                       int64_t /*position*/, Randomness& random) const {
  check_probs(draft, target);
  RejectionTrial trial(draft, target);
  const VerifyRandomness draws{random};
  device::verify_by_rejection(&trial, &draws);
  return {.path = trial.path(), .next = trial.distribution().draw(random)};
}

}  // namespace specdec
