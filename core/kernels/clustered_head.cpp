#include "core/kernels/clustered_head.h"

#include <ATen/ATen.h>

#include <limits>

#include "core/error.h"
#include "core/kernels/linear_rows.h"
#include "core/kernels/ops.h"

namespace specdec {
namespace {

/// A state [1, hidden] as the weights of a product whose inputs are rows of a head: each score is
/// the sum of the same products in the same order, and no row has to be laid out anew.
Linear as_weight(const Tensor& state, const Linear& head) {
  return {state, weight_format(state.scalar_type()), {}, Placement{head.device(), head.layout()}};
}

}  // namespace

void check_cluster_sizes(const ClusteredHead& head, const Tensor& centroid_scores,
                         const Tensor& states, const Tensor& logits) {
  const int64_t rows = states.size(0);
  const int64_t clusters = head.clusters.tokens.size(0);
  const int64_t vocab = head.weight.out();
  SPECDEC_CHECK(centroid_scores.size(0) == rows && centroid_scores.size(1) == clusters &&
                    logits.size(0) == rows && logits.size(1) == vocab,
                "score_clusters: scores [{}, {}] and logits [{}, {}] of {} states for {} clusters "
                "of {} tokens",
                centroid_scores.size(0), centroid_scores.size(1), logits.size(0), logits.size(1),
                rows, clusters, vocab);
  SPECDEC_CHECK(states.size(1) == head.weight.in(), "score_clusters: states of {} for a head of {}",
                states.size(1), head.weight.in());
  SPECDEC_CHECK(head.clusters.tokens.numel() == vocab && head.clusters.places.numel() == vocab,
                "score_clusters: clusters of {} tokens and {} places for {} tokens",
                head.clusters.tokens.numel(), head.clusters.places.numel(), vocab);
  SPECDEC_CHECK(head.chosen > 0 && head.chosen <= clusters, "score_clusters: {} of {} clusters",
                head.chosen, clusters);
}

TokenClusters token_clusters(const Tensor& ordering, at::Device device) {
  return {.tokens = ordering.to(at::kInt).contiguous().to(device),
          .places = ordering.flatten().argsort().to(at::kInt).to(device)};
}

void score_clusters(Ops& ops, const ClusteredHead& head, const Tensor& centroid_scores,
                    const Tensor& states, Tensor& logits) {
  check_cluster_sizes(head, centroid_scores, states, logits);
  const Tensor best = std::get<1>(at::sort(centroid_scores, /*stable=*/true, 1, true));
  for (int64_t node = 0; node < states.size(0); ++node) {
    const Tensor chosen = best[node].narrow(0, 0, head.chosen);
    const Tensor tokens = head.clusters.tokens.index_select(0, chosen).flatten().to(at::kLong);
    const Tensor scores = ops.linear(as_weight(states.narrow(0, node, 1), head.weight),
                                     linear_rows(head.weight, tokens));
    Tensor out = logits[node];
    if (head.fill == CentroidFill::kNothing) {
      out.fill_(-std::numeric_limits<double>::infinity());
    } else {
      out.copy_(scores.min() - 1.0);
    }
    out.index_copy_(0, tokens, scores.flatten());
  }
}

}  // namespace specdec
