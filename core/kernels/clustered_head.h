#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/kernels/linear.h"

namespace specdec {

class Ops;

/// What tokens outside the chosen clusters get.
enum class CentroidFill {
  kBelowMinimum,  ///< the smallest chosen logit - 1, as transformers does
  kNothing        ///< -infinity: they are never drafted
};

/// The tokens of each cluster, and where a token lies among them: int32, on the head's device.
struct TokenClusters {
  Tensor tokens;  ///< [clusters, tokens of each]: every token of the vocabulary once
  Tensor places;  ///< [vocab] its inverse: of a token, the index among all `tokens`
};
/// The clusters of an ordering [clusters, tokens of each] int64, on a device.
TokenClusters token_clusters(const Tensor& ordering, at::Device device);

/// A head of which the tokens of the best clusters are scored.
struct ClusteredHead {
  const Linear& weight;  ///< [vocab, hidden], of one part
  const TokenClusters& clusters;
  int64_t chosen;  ///< clusters of a row: 1 to all
  CentroidFill fill;
};

/// Throws InternalError for operands of score_clusters that do not fit one another.
void check_cluster_sizes(const ClusteredHead& head, const Tensor& centroid_scores,
                         const Tensor& states, const Tensor& logits);

/// Logits [n, vocab] of states [n, hidden] for the tokens of each row's `chosen` best clusters by
/// centroid_scores [n, clusters]: the largest, of equal ones the lowest numbers, NaN before all.
/// All other tokens get what `fill` says. A row's bits depend on its own numbers alone; on the CPU
/// a token's score has the bits that linear() of the whole head gives it. Made of `ops.linear` and
/// ATen ops: what Ops::score_clusters does where a device has no kernel for it.
void score_clusters(Ops& ops, const ClusteredHead& head, const Tensor& centroid_scores,
                    const Tensor& states, Tensor& logits);

}  // namespace specdec
