#include "decoders/verifiers/block.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/kernels/probs.h"
#include "decoders/verifiers/probs.h"

namespace specdec {
namespace {

void check_chain(const Draft& draft) {
  for (int64_t node = 0; node < draft.size(); ++node) {
    SPECDEC_CHECK(draft.parents[static_cast<size_t>(node)] == node - 1,
                  "block verification takes chains only, and node {} of this draft follows node "
                  "{}; use rejection for trees",
                  node, draft.parents[static_cast<size_t>(node)]);
  }
}

/// A chain with the distributions on both sides.
class Chain {
 public:
  Chain(const Draft& draft, TargetProbs& target)
      : draft_(draft), target_(target), weights_(draft.tokens.size(), 1.0) {
    for (int64_t i = 0; i + 1 < draft.size(); ++i) {
      const double drafted =
          drawn(i) ? weight_of(row_of(draft.probs, distribution(i)), child(i)) : 1.0;
      SPECDEC_CHECK(
          drafted > 0.0,
          "token {} was drafted, but the distribution that it was drawn from gives it no mass: "
          "the draft's distributions are not the ones it was drawn from",
          child(i));
      const double mass = weight_of(this->target(i), child(i));
      weights_[static_cast<size_t>(i) + 1] = std::min(1.0, weight(i) * mass / drafted);
    }
  }

  int64_t length() const { return draft_.size() - 1; }
  Probs target(int64_t i) const { return target_.after(i); }
  /// w_i
  double weight(int64_t i) const { return weights_[static_cast<size_t>(i)]; }
  /// max(w_i p - q, 0) after i < length() tokens.
  std::vector<double> rest(int64_t i) const {
    return drawn(i) ? residual(target(i), row_of(draft_.probs, distribution(i)), weight(i))
                    : residual(target(i), child(i), weight(i));
  }

 private:
  int64_t distribution(int64_t i) const { return draft_.child_probs[static_cast<size_t>(i)]; }
  bool drawn(int64_t i) const { return distribution(i) >= 0; }
  Token child(int64_t i) const { return draft_.tokens[static_cast<size_t>(i) + 1]; }

  const Draft& draft_;
  TargetProbs& target_;
  std::vector<double> weights_;
};

/// h_i of i < length() tokens, from the sum of their residual.
double acceptance(double rest_sum, double weight) {
  const double sum = rest_sum + 1.0 - weight;
  return sum > 0.0 ? rest_sum / sum : 0.0;
}

}  // namespace

VerifyResult BlockVerifier::verify(const Draft& draft, TargetProbs& target, int64_t /*position*/,
                                   Randomness& random) const {
  check_probs(draft, target);
  check_chain(draft);
  const Chain chain(draft, target);
  // The choices are independent, so the largest that passes can be sought from the end.
  int64_t accepted = chain.length();
  bool passed = random.bernoulli(chain.weight(accepted));
  std::vector<double> rest;
  while (!passed && accepted > 0) {
    --accepted;
    rest = chain.rest(accepted);
    const double sum = sum_of(rest).sum;
    passed = accepted == 0 || random.bernoulli(acceptance(sum, chain.weight(accepted)));
  }
  VerifyResult result{.path = chain_path(accepted + 1)};
  // Nothing is left only when rounding alone made the rejection possible.
  const bool all = accepted == chain.length();
  result.next = static_cast<Token>(
      random.draw(!all && normalise(rest) ? Probs(rest) : chain.target(accepted)));
  return result;
}

}  // namespace specdec
