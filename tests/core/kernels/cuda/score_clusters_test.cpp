#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/kernels/cuda/cluster_kernels.h"
#include "core/kernels/cuda/cuda_ops.h"
#include "core/kernels/cuda/cuda_tasks.h"
#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/launch_shape.h"
#include "tests/core/kernels/cluster_case.h"

namespace specdec {
namespace {

const Placement kClusterPlace{at::kCPU, WeightLayout::kRows};

TEST(CudaScoreClustersTest, EqualsScoresInFloat64) {
  at::manual_seed(33);
  const auto ops = cuda_ops(at::kCPU);
  for (const WeightFormat format :
       {WeightFormat::kFloat32, WeightFormat::kBFloat16, WeightFormat::kFloat16,
        WeightFormat::kInt8, WeightFormat::kQ2K, WeightFormat::kQ3K, WeightFormat::kQ4K,
        WeightFormat::kQ6K, WeightFormat::kInt4x32, WeightFormat::kAffine8x64,
        WeightFormat::kNf4x32}) {
    const bool by_any = !is_in_blocks(format);
    for (const int64_t in : {by_any ? 18 : 256, by_any ? 300 : 512}) {
      SCOPED_TRACE(testing::Message() << format_name(format) << " of " << in);
      cuda::emulation::set_seed(static_cast<uint64_t>(in));
      const ClusterCase head(format, in, kClusterPlace);
      const Tensor states = at::randn({3, in}) * at::randn({3, 1}).exp();
      const Tensor centroid_scores = at::randn({3, ClusterCase::kClusters});
      const Tensor exact = at::matmul(states.to(at::kDouble), head.values.t());
      const Tensor bound =
          at::matmul(states.abs().to(at::kDouble), head.magnitude.to(at::kDouble).t()) * 5e-7;
      for (const CentroidFill fill : kCentroidFills) {
        const Tensor logits = head.logits(*ops, centroid_scores, states, 4, fill);
        const Tensor mask = head.chosen_tokens(centroid_scores, 4);
        EXPECT_TRUE(
            ((logits - exact).abs() <= bound).logical_or(mask.logical_not()).all().item<bool>());
        EXPECT_TRUE(at::equal(logits, ClusterCase::filled(logits, mask, fill)));
      }
    }
  }
}

TEST(CudaScoreClustersTest, ChoosesTheClustersThatTheOpDoes) {
  at::manual_seed(34);
  const ClusterCase head(WeightFormat::kFloat32, 16, kClusterPlace);
  const Tensor states = at::randn({5, 16});
  const Tensor scores = ClusterCase::tied_scores();
  const auto ops = cuda_ops(at::kCPU);
  for (const int64_t chosen : {int64_t{1}, int64_t{3}, ClusterCase::kClusters}) {
    const Tensor logits = head.logits(*ops, scores, states, chosen, CentroidFill::kNothing);
    EXPECT_TRUE(at::equal(logits.isfinite(), head.chosen_tokens(scores, chosen))) << chosen;
  }
}

// More clusters than a warp has lanes and than a block has warps, of more tokens than a block
// writes.
TEST(CudaScoreClustersTest, ManyClustersAreRankedAndWritten) {
  at::manual_seed(35);
  constexpr int64_t kMany = 100;
  constexpr int64_t kTokens = 13;
  const Linear weight(at::randn({kMany * kTokens, 8}), WeightFormat::kFloat32, {}, kClusterPlace);
  const TokenClusters clusters =
      token_clusters(at::randperm(kMany * kTokens, at::kLong).view({kMany, kTokens}), at::kCPU);
  const Tensor states = at::randn({2, 8});
  const Tensor centroid_scores = at::randint(0, 40, {2, kMany}, at::kFloat);
  const ClusteredHead head{weight, clusters, 37, CentroidFill::kBelowMinimum};
  Tensor logits = at::full({2, kMany * kTokens}, std::nan(""));
  cuda_ops(at::kCPU)->score_clusters(head, centroid_scores, states, logits);
  const Linear panels(weight.unpack(), WeightFormat::kFloat32);
  Tensor hosts = at::full_like(logits, std::nan(""));
  cpu_ops()->score_clusters({panels, clusters, 37, CentroidFill::kBelowMinimum}, centroid_scores,
                            states, hosts);
  EXPECT_TRUE(at::allclose(logits, hosts, 1e-5, 1e-5));
}

TEST(CudaScoreClustersTest, ARowHasItsBitsAloneAndAmongOthers) {
  at::manual_seed(36);
  const auto ops = cuda_ops(at::kCPU);
  for (const WeightFormat format : {WeightFormat::kFloat32, WeightFormat::kBFloat16,
                                    WeightFormat::kFloat16, WeightFormat::kInt8}) {
    const ClusterCase head(format, 96, kClusterPlace);
    const Tensor row = at::randn({1, 96});
    const Tensor row_scores = at::randn({1, ClusterCase::kClusters});
    const Tensor alone = head.logits(*ops, row_scores, row, 3);
    EXPECT_TRUE(alone.isfinite().all().item<bool>());
    for (const int64_t width : {2, 9}) {
      for (const int64_t place : {int64_t{0}, width - 1}) {
        Tensor states = at::randn({width, 96});
        states[width / 2].fill_(std::nan(""));
        states[place].copy_(row[0]);
        Tensor scores = at::randn({width, ClusterCase::kClusters});
        scores[width / 2].fill_(std::nan(""));
        scores[place].copy_(row_scores[0]);
        EXPECT_TRUE(at::equal(head.logits(*ops, scores, states, 3)[place], alone[0]))
            << format_name(format) << ", row " << place << " of " << width;
      }
    }
  }
}

// What others get is found by all blocks of a row, of which there are 25 here, whatever sign scores
// have, and anew in each call.
TEST(CudaScoreClustersTest, OthersGetTheSmallestScoreOfTheirRow) {
  at::manual_seed(37);
  constexpr int64_t kClusters = 20;
  constexpr int64_t kTokens = 33;
  const Linear weight(at::rand({kClusters * kTokens, 8}) + 0.1, WeightFormat::kFloat32, {},
                      kClusterPlace);
  const TokenClusters clusters = token_clusters(
      at::randperm(kClusters * kTokens, at::kLong).view({kClusters, kTokens}), at::kCPU);
  const auto ops = cuda_ops(at::kCPU);
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor rows = at::tensor({1.0F, -1.0F, 1e-20F, -1e20F, 0.0F, infinity, -infinity});
  for (const double factor : {1.0, -3.0}) {
    const Tensor states = (rows * factor).view({-1, 1}).expand({7, 8}).contiguous();
    const Tensor centroid_scores = at::randn({7, kClusters});
    const ClusteredHead some{weight, clusters, 6, CentroidFill::kNothing};
    const ClusteredHead filled{weight, clusters, 6, CentroidFill::kBelowMinimum};
    Tensor chosen = at::zeros({7, kClusters * kTokens});
    Tensor logits = at::zeros_like(chosen);
    ops->score_clusters(some, centroid_scores, states, chosen);
    ops->score_clusters(filled, centroid_scores, states, logits);
    for (int64_t row = 0; row < 7; ++row) {
      const Tensor scores = chosen[row].masked_select(chosen[row] != -infinity);
      // Scores of -infinity were left out.
      const float fill = scores.numel() == 0 ? -infinity : scores.min().item<float>() - 1.0F;
      const Tensor wanted = at::where(chosen[row] == -infinity, fill, chosen[row]);
      EXPECT_TRUE(at::equal(logits[row], wanted)) << row << " times " << factor;
    }
  }
}

TEST(CudaScoreClustersTest, AScoreThatIsNoNumberIsInTheLogits) {
  const auto ops = cuda_ops(at::kCPU);
  const ClusterCase head(WeightFormat::kFloat32, 16, kClusterPlace);
  const Tensor states = at::full({1, 16}, std::nan(""));
  const Tensor scores = at::zeros({1, ClusterCase::kClusters});
  EXPECT_TRUE(head.logits(*ops, scores, states, 2).isnan().all().item<bool>());
  const Tensor nothing = head.logits(*ops, scores, states, 2, CentroidFill::kNothing);
  EXPECT_TRUE(at::equal(nothing.isnan(), head.chosen_tokens(scores, 2)));
}

// A score that is no number counts as long as its cluster is chosen.
TEST(CudaScoreClustersTest, OneScoreThatIsNoNumberIsInAllOthers) {
  at::manual_seed(38);
  Tensor weights = at::randn({20 * 33, 8});
  weights[50].fill_(std::nan(""));
  const Linear weight(weights, WeightFormat::kFloat32, {}, kClusterPlace);
  const TokenClusters clusters =
      token_clusters(at::arange(20 * 33, at::kLong).view({20, 33}), at::kCPU);
  Tensor scores = at::zeros({2, 20});
  scores[0][1] = 1.0;  // the cluster of token 50
  scores[1][1] = -1.0;
  Tensor logits = at::zeros({2, 20 * 33});
  cuda_ops(at::kCPU)->score_clusters({weight, clusters, 6, CentroidFill::kBelowMinimum}, scores,
                                     at::randn({2, 8}), logits);
  EXPECT_EQ(logits[0].isnan().sum().item<int64_t>(), 14 * 33 + 1);
  EXPECT_FALSE(logits[1].isnan().any().item<bool>());
}

TEST(CudaScoreClustersTest, WhatTheKernelDoesNotTakeIsRefused) {
  const ClusterCase head(WeightFormat::kFloat32, 16, kClusterPlace);
  const TokenClusters clusters = token_clusters(head.ordering, at::kCPU);
  const Tensor states = at::zeros({2, 16});
  const Tensor scores = at::zeros({2, ClusterCase::kClusters});
  Tensor logits = at::zeros({2, ClusterCase::kVocab});
  const auto error_of = [&](auto change) {
    cuda::ScoreClustersTask task = cuda::score_clusters_task(
        {head.weight, clusters, 2, CentroidFill::kNothing}, scores, states, logits);
    const Tensor workspace = at::empty({specdec_cuda_score_clusters_workspace(&task)});
    task.workspace = workspace.mutable_data_ptr<float>();
    change(task);
    return specdec_cuda_score_clusters(&task, nullptr);
  };
  using Task = cuda::ScoreClustersTask;
  EXPECT_EQ(error_of([](Task& /*task*/) {}), 0);
  EXPECT_EQ(error_of([](Task& task) { task.rows = 0; }), 0);
  EXPECT_EQ(error_of([](Task& task) { task.chosen = 0; }), cuda::kInvalidValue);
  EXPECT_EQ(error_of([](Task& task) { task.chosen = task.clusters + 1; }), cuda::kInvalidValue);
  EXPECT_EQ(error_of([](Task& task) { task.in = 0; }), cuda::kInvalidValue);

  const auto ops = cuda_ops(at::kCPU);
  EXPECT_THROW(head.logits(*ops, scores, states, 0), InternalError);
  const ClusterCase panels(WeightFormat::kFloat32, 16, {});
  EXPECT_THROW(panels.logits(*ops, scores, states, 2), InternalError);
}

}  // namespace
}  // namespace specdec
