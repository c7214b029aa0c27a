#include "core/kernels/clustered_head.h"

#include <ATen/ATen.h>

#include <limits>

#include "core/error.h"
#include "core/kernels/linear_rows.h"
#include "core/kernels/ops.h"

namespace specdec {
namespace {

/// Rows of a head as a matrix of their own, in the format of its products' inputs.
Linear gathered_rows(const Linear& weight, const Tensor& tokens) {
  const Tensor rows = linear_rows(weight, tokens);
  return {rows, weight_format(rows.scalar_type()), {}, Placement{weight.device(), weight.layout()}};
}

}  // namespace

void check_cluster_sizes(const ClusteredHead& head, const Tensor& centroid_scores,
                         const Tensor& states, const Tensor& logits) {
  const int64_t rows = states.size(0);
  const int64_t clusters = head.clusters.tokens.size(0);
  SPECDEC_CHECK(centroid_scores.size(0) == rows && centroid_scores.size(1) == clusters &&
                    logits.size(0) == rows && logits.size(1) == head.weight.out() &&
                    head.clusters.tokens.numel() == head.weight.out(),
                "score_clusters: scores [{}, {}] and logits [{}, {}] of {} states for {} clusters "
                "of {} tokens",
                centroid_scores.size(0), centroid_scores.size(1), logits.size(0), logits.size(1),
                rows, clusters, head.weight.out());
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
    Tensor scores = at::empty({1, tokens.size(0)}, states.options());
    ops.linear(gathered_rows(head.weight, tokens), states.narrow(0, node, 1), scores);
    Tensor out = logits[node];
    if (head.fill == CentroidFill::kNothing) {
      out.fill_(-std::numeric_limits<double>::infinity());
    } else {
      out.copy_(scores.min() - 1.0);
    }
    out.index_copy_(0, tokens, scores[0]);
  }
}

}  // namespace specdec
