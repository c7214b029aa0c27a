#include "core/kernels/clustered_head.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/kernels/linear_product.h"
#include "tests/core/kernels/cluster_case.h"

namespace specdec {
namespace {

TEST(ClusteredHeadTest, ScoresHaveTheBitsThatTheWholeHeadGives) {
  at::manual_seed(31);
  const auto ops = cpu_ops();
  for (const WeightFormat format :
       {WeightFormat::kFloat64, WeightFormat::kFloat32, WeightFormat::kBFloat16,
        WeightFormat::kFloat16, WeightFormat::kInt8, WeightFormat::kQ4K}) {
    const ClusterCase head(format, format == WeightFormat::kQ4K ? 256 : 96, {});
    const at::ScalarType dtype = head.weight.compute_dtype();
    const Tensor states = at::randn({3, head.weight.in()}, dtype);
    const Tensor whole = linear_product(head.weight, states);
    const Tensor centroid_scores = at::randn({3, ClusterCase::kClusters}, dtype);
    for (const int64_t chosen : {int64_t{1}, int64_t{4}, ClusterCase::kClusters}) {
      for (const CentroidFill fill : kCentroidFills) {
        SCOPED_TRACE(testing::Message() << format_name(format) << ", " << chosen << " chosen");
        const Tensor mask = head.chosen_tokens(centroid_scores, chosen);
        EXPECT_TRUE(at::equal(head.logits(*ops, centroid_scores, states, chosen, fill),
                              ClusterCase::filled(whole, mask, fill)));
      }
    }
  }
}

TEST(ClusteredHeadTest, OfEqualClustersTheLowestAreChosenAndThoseOfNanFirst) {
  at::manual_seed(32);
  const ClusterCase head(WeightFormat::kFloat32, 16, {});
  const Tensor states = at::randn({5, 16});
  const Tensor scores = ClusterCase::tied_scores();
  for (const int64_t chosen : {int64_t{1}, int64_t{3}, ClusterCase::kClusters}) {
    const Tensor logits = head.logits(*cpu_ops(), scores, states, chosen, CentroidFill::kNothing);
    EXPECT_TRUE(at::equal(logits.isfinite(), head.chosen_tokens(scores, chosen))) << chosen;
  }
}

TEST(ClusteredHeadTest, OperandsThatDoNotFitAreRefused) {
  const ClusterCase head(WeightFormat::kFloat32, 16, {});
  const auto ops = cpu_ops();
  const Tensor states = at::zeros({2, 16});
  const Tensor scores = at::zeros({2, ClusterCase::kClusters});
  EXPECT_NO_THROW(head.logits(*ops, scores, states, ClusterCase::kClusters));
  EXPECT_THROW(head.logits(*ops, scores, states, ClusterCase::kClusters + 1), InternalError);
  EXPECT_THROW(head.logits(*ops, scores, states, 0), InternalError);
  EXPECT_THROW(head.logits(*ops, scores.narrow(0, 0, 1), states, 1), InternalError);
  EXPECT_THROW(head.logits(*ops, scores.narrow(1, 0, 4), states, 1), InternalError);

  const Tensor logits = at::zeros({2, ClusterCase::kVocab});
  const auto check = [&](const TokenClusters& clusters, const Tensor& of) {
    check_cluster_sizes({head.weight, clusters, 1, CentroidFill::kNothing}, scores, of, logits);
  };
  const TokenClusters clusters = token_clusters(head.ordering, at::kCPU);
  const auto [tokens, places] = clusters;
  EXPECT_NO_THROW(check(clusters, states));
  EXPECT_THROW(check(clusters, states.narrow(1, 0, 15)), InternalError);
  EXPECT_THROW(check(clusters, at::zeros({2, 17})), InternalError);
  EXPECT_THROW(check({tokens, places.narrow(0, 1, ClusterCase::kVocab - 1)}, states),
               InternalError);
  EXPECT_THROW(check({tokens.narrow(1, 0, 4), places}, states), InternalError);
}

}  // namespace
}  // namespace specdec
