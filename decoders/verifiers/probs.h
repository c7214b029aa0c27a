#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "decoders/verifier.h"

namespace specdec {

/// What every verifier asks of its input: a target distribution for each node, and distributions of
/// the draft, if any, over the same vocabulary. Throws InternalError.
void check_probs(const Draft& draft, const TargetProbs& target);

/// The probability with which `token` was drawn from `q`, 1 when it was chosen deterministically
/// (nullptr). InternalError when q gives it none: then q is not what it was drawn from.
double drafted_mass(const TokenProbs* q, Token token);

/// A draft as the functions of core/kernels/device/verify.h walk it, which notes the nodes that
/// stay.
class DraftWalk {
 public:
  /// Borrows the draft.
  explicit DraftWalk(const Draft& draft) : draft_(draft) {}
  int32_t child_after(int32_t node, int32_t last) const;
  Token token(int32_t node) const { return draft_.tokens[static_cast<size_t>(node)]; }
  void enter(int32_t node) { path_.push_back(node); }
  const std::vector<int64_t>& path() const { return path_; }

 private:
  const Draft& draft_;
  std::vector<int64_t> path_;
};

/// The host's randomness, as those functions draw from it.
struct VerifyRandomness {
  Randomness& random;

  bool accepts(double target, double drafted) const { return random.bernoulli(target / drafted); }
};

/// Follows the draft from its root as long as it holds what `choose(node, depth)` says comes next;
/// the first choice that it does not hold is VerifyResult::next.
VerifyResult follow(const Draft& draft,
                    const std::function<Token(int64_t node, int64_t depth)>& choose);

}  // namespace specdec
