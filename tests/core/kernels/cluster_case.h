#pragma once
#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "core/kernels/clustered_head.h"
#include "core/kernels/linear.h"
#include "core/kernels/ops.h"
#include "tests/support/stored_blocks.h"

/// What score_clusters should come to, by plain loops.
namespace specdec {

/// A random head of clusters, and what its weights mean.
struct ClusterCase {
  static constexpr int64_t kClusters = 12;
  static constexpr int64_t kEach = 5;
  static constexpr int64_t kVocab = kClusters * kEach;

  Linear weight;
  Tensor values;     ///< [kVocab, in] float64
  Tensor magnitude;  ///< of a weight; with minima, of both numbers that it is the difference of
  Tensor ordering = at::randperm(kVocab, at::kLong).view({kClusters, kEach});

  ClusterCase(WeightFormat format, int64_t in, const Placement& place) {
    if (is_in_blocks(format)) {
      const StoredRows rows = random_stored_rows(format, kVocab, in, 13);
      weight = rows.packed(place);
      values = rows.values().to(at::kDouble);
      magnitude = rows.magnitudes();
    } else {
      const Tensor numbers = at::randn({kVocab, in}).to(scalar_type(format));
      weight = Linear(numbers, format, {}, place);
      values = numbers.to(at::kDouble);
      magnitude = values.abs();
    }
    weight.arrange();
  }

  Tensor logits(Ops& ops, const Tensor& centroid_scores, const Tensor& states, int64_t chosen,
                CentroidFill fill = CentroidFill::kBelowMinimum) const {
    const TokenClusters clusters = token_clusters(ordering, weight.device());
    Tensor out = at::full({states.size(0), kVocab}, std::nan(""), states.options());
    ops.score_clusters({weight, clusters, chosen, fill}, centroid_scores, states, out);
    return out;
  }

  /// [n, kVocab] whether a row's best clusters have a token.
  Tensor chosen_tokens(const Tensor& centroid_scores, int64_t chosen) const {
    Tensor mask = at::zeros({centroid_scores.size(0), kVocab}, at::kBool);
    for (int64_t row = 0; row < mask.size(0); ++row) {
      std::vector<int64_t> left(kClusters);
      std::iota(left.begin(), left.end(), 0);
      for (int64_t rank = 0; rank < chosen; ++rank) {
        auto best = left.begin();
        for (auto next = left.begin(); next != left.end(); ++next) {
          const double score = centroid_scores[row][*next].item<double>();
          const double largest = centroid_scores[row][*best].item<double>();
          const bool is_better = std::isnan(largest) ? false : std::isnan(score) || score > largest;
          best = is_better ? next : best;
        }
        mask[row].index_fill_(0, ordering[*best], true);
        left.erase(best);
      }
    }
    return mask;
  }

  /// [5, kClusters] of which many are equal, NaN or infinite.
  static Tensor tied_scores() {
    Tensor scores = at::randint(0, 3, {5, kClusters}, at::kFloat);
    scores[0].fill_(2);
    scores[1].zero_().narrow(0, 3, 4).mul_(-1);  // -0 is 0
    scores[2][7] = scores[2][9] = std::nan("");
    scores[3].fill_(std::nan(""));
    scores[4][5] = std::numeric_limits<float>::infinity();
    scores[4][6] = -std::numeric_limits<float>::infinity();
    return scores;
  }

  /// The scores [n, kVocab] of the chosen tokens, and what the others get.
  static Tensor filled(const Tensor& scores, const Tensor& mask, CentroidFill fill) {
    Tensor out = scores.clone();
    for (int64_t row = 0; row < out.size(0); ++row) {
      const Tensor smallest = scores[row].masked_select(mask[row]).min();
      const Tensor other = fill == CentroidFill::kNothing
                               ? at::full_like(smallest, -std::numeric_limits<double>::infinity())
                               : smallest - 1.0;
      out[row].masked_fill_(mask[row].logical_not(), other);
    }
    return out;
  }
};

inline constexpr CentroidFill kCentroidFills[] = {CentroidFill::kBelowMinimum,
                                                  CentroidFill::kNothing};

}  // namespace specdec
