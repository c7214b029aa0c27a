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
      const double drafted = drafted_mass(draft.drawn_from(i), child(i));
      const double mass = target.probability(i, child(i));
      weights_[static_cast<size_t>(i) + 1] = std::min(1.0, weight(i) * mass / drafted);
    }
  }

  int64_t length() const { return draft_.size() - 1; }
  const TokenProbs& target(int64_t i) const { return target_.after(i); }
  /// w_i
  double weight(int64_t i) const { return weights_[static_cast<size_t>(i)]; }
  /// max(w_i p - q, 0) after i < length() tokens.
  TokenProbs rest(int64_t i) const {
    const TokenProbs* drafted = draft_.drawn_from(i);
    return residual(
        target(i),
        drafted != nullptr ? *drafted : TokenProbs::one_hot(child(i), target_.vocab_size()),
        weight(i));
  }

 private:
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
  TokenProbs rest;
  double left = 0.0;  // its sum
  while (!passed && accepted > 0) {
    --accepted;
    rest = chain.rest(accepted);
    left = rest.sum();
    passed = accepted == 0 || random.bernoulli(acceptance(left, chain.weight(accepted)));
  }
  // Nothing is left only when rounding alone made the rejection possible.
  const TokenProbs& next = left > 0.0 ? rest : chain.target(accepted);
  return {.path = chain_path(accepted + 1), .next = next.draw(random)};
}

}  // namespace specdec
