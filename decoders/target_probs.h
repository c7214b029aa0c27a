#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace specdec {

using at::Tensor;

/// Probabilities over the vocabulary, or weights that need not sum to one.
using Probs = std::span<const double>;

/// The target's processed distributions of the token after each node of a draft: what a verifier
/// decides with. Ask for the nodes that you look at: the interface allows that a distribution is
/// only made when it is asked for.
class TargetProbs {
 public:
  /// probs: [n, vocab] float64, contiguous, on the CPU: row i is the distribution after node i. It
  /// shares the tensor's memory. InternalError for anything else.
  explicit TargetProbs(Tensor probs);

  int64_t nodes() const;
  int64_t vocab_size() const;
  /// The distribution of the token after `node`; holds as long as the object.
  Probs after(int64_t node);

 private:
  Tensor probs_;
};

}  // namespace specdec
