#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "core/token_probs.h"

namespace specdec {

using at::Tensor;

/// The target's processed distributions of the token after each node of a draft: what a verifier
/// decides with. Each is made when it is first asked for, so ask for the nodes that you look at.
class TargetProbs {
 public:
  /// What makes the distribution after a node; called once for each node that is asked for.
  using Make = std::function<TokenProbs(int64_t node)>;
  TargetProbs(int64_t nodes, int64_t vocab_size, Make make);
  /// probs: [n, vocab] float64 on the CPU: row i is the distribution after node i. InternalError
  /// for anything else.
  explicit TargetProbs(const Tensor& probs);
  TargetProbs(const TargetProbs&) = delete;
  TargetProbs& operator=(const TargetProbs&) = delete;
  TargetProbs(TargetProbs&&) = default;
  TargetProbs& operator=(TargetProbs&&) = default;

  int64_t nodes() const { return static_cast<int64_t>(made_.size()); }
  int64_t vocab_size() const { return vocab_size_; }
  /// The distribution of the token after `node`; holds as long as the object.
  const TokenProbs& after(int64_t node);
  /// Probability of `token` after `node`.
  double probability(int64_t node, Token token) { return after(node)[token]; }
  /// The most likely token after `node`; the lowest id on a tie.
  Token best(int64_t node) { return after(node).best(); }
  /// Draws the token after `node`.
  Token draw(int64_t node, Randomness& random) { return after(node).draw(random); }

 private:
  int64_t vocab_size_ = 0;
  Make make_;
  std::vector<TokenProbs> made_;  // empty = not asked for yet
};

}  // namespace specdec
