#include "decoders/verifiers/block.h"

#include <vector>

#include "core/error.h"
#include "core/kernels/device/verify.h"
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

/// A chain with the distributions on both sides, and what its next token is drawn from. Child i is
/// node i.
class BlockChain {
 public:
  BlockChain(const Draft& draft, TargetProbs& target) : draft_(draft), probs_(target) {
    for (int64_t child = 1; child < draft.size(); ++child) {
      target_.push_back(target.probability(child - 1, token(child)));
      drafted_.push_back(drafted_mass(draft.drawn_from(child - 1), token(child)));
    }
  }

  double target(int32_t child) const { return target_[static_cast<size_t>(child) - 1]; }
  double drafted(int32_t child) const { return drafted_[static_cast<size_t>(child) - 1]; }
  double leave(int32_t tokens, double weight) {
    const TokenProbs* drafted = draft_.drawn_from(tokens);
    left_ = residual(
        probs_.after(tokens),
        drafted != nullptr ? *drafted : TokenProbs::one_hot(token(tokens + 1), probs_.vocab_size()),
        weight);
    return left_.sum();
  }
  void restore(int32_t tokens) { left_ = probs_.after(tokens); }
  /// What the next token is drawn from.
  const TokenProbs& left() const { return left_; }

 private:
  Token token(int64_t node) const { return draft_.tokens[static_cast<size_t>(node)]; }

  const Draft& draft_;
  TargetProbs& probs_;
  std::vector<double> target_;   // of each child
  std::vector<double> drafted_;  // the same
  TokenProbs left_;
};

}  // namespace

VerifyResult BlockVerifier::verify(const Draft& draft, TargetProbs& target, int64_t /*position*/,
                                   Randomness& random) const {
  check_probs(draft, target);
  check_chain(draft);
  BlockChain chain(draft, target);
  const VerifyRandomness draws{random};
  const auto length = static_cast<int32_t>(draft.proposed());
  const int32_t accepted = device::verify_block<double>(&chain, &draws, length);
  return {.path = chain_path(accepted + 1), .next = chain.left().draw(random)};
}

}  // namespace specdec
