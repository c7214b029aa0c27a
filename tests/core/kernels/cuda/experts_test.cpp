#include "core/kernels/experts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"

namespace specdec {
namespace {

constexpr float kNoOutput = std::numeric_limits<float>::quiet_NaN();

Routes cuda_routes(const Tensor& logits, const Tensor& scale, int64_t chosen) {
  const int64_t rows = logits.size(0);
  const Routes routes = {at::full({rows, chosen}, -7, at::kInt),
                         at::full({rows, chosen}, kNoOutput)};
  const cuda::RouteTask task = {logits.const_data_ptr<float>(),
                                scale.const_data_ptr<float>(),
                                routes.experts.mutable_data_ptr<int32_t>(),
                                routes.weights.mutable_data_ptr<float>(),
                                static_cast<int32_t>(rows),
                                static_cast<int32_t>(logits.size(1)),
                                static_cast<int32_t>(chosen)};
  EXPECT_EQ(specdec_cuda_route(&task, nullptr), 0);
  return routes;
}

Routes host_routes(const Tensor& logits, const Tensor& scale, int64_t chosen) {
  const int64_t rows = logits.size(0);
  Routes routes = {at::empty({rows, chosen}, at::kInt), at::empty({rows, chosen})};
  route(logits, scale, routes);
  return routes;
}

TEST(CudaExpertsTest, RoutesAsTheOpDoes) {
  at::manual_seed(41);
  for (const int64_t count : {1, 5, 32, 128}) {
    for (const int64_t chosen : {int64_t{1}, std::min<int64_t>(count, 8), count}) {
      SCOPED_TRACE(testing::Message() << chosen << " of " << count);
      cuda::emulation::set_seed(static_cast<uint64_t>(count + chosen));
      const Tensor scale = at::rand({count}) + 0.5;
      for (const bool ties : {false, true}) {
        const Tensor logits =
            ties ? at::randint(-2, 3, {6, count}, at::kFloat) : at::randn({6, count}) * 3;
        logits[0].fill_(2);
        if (count > 1) {
          logits[1][count / 2] = -std::numeric_limits<float>::infinity();
        }
        const Routes routes = cuda_routes(logits, scale, chosen);
        const Routes expected = host_routes(logits, scale, chosen);
        EXPECT_TRUE(at::equal(routes.experts, expected.experts));
        EXPECT_TRUE(at::allclose(routes.weights, expected.weights, 1e-6, 1e-7));
      }
    }
  }
}

TEST(CudaExpertsTest, ExpertsOfARowWithoutNumbersAreExperts) {
  const Tensor logits = at::full({1, 40}, kNoOutput);
  const Routes routes = cuda_routes(logits, at::ones({40}), 4);
  EXPECT_TRUE(at::equal(routes.experts[0], at::arange(4, at::kInt)));
}

/// One matrix for each expert, on both sides.
struct ExpertWeights {
  std::vector<Linear> host;
  Tensor stored;  ///< [experts, out, in]

  int64_t out() const { return host[0].out(); }
};

ExpertWeights random_experts(int64_t count, int64_t out, int64_t in) {
  ExpertWeights weights{{}, at::randn({count, out, in})};
  for (int64_t e = 0; e < count; ++e) {
    weights.host.emplace_back(weights.stored[e], WeightFormat::kFloat32);
  }
  return weights;
}

Tensor cuda_expert_linear(const ExpertWeights& weights, const Tensor& experts, const Tensor& input,
                          int64_t rows_share) {
  const Tensor out = at::full({experts.numel(), weights.out()}, kNoOutput);
  const cuda::ExpertLinearTask task = {weights.stored.const_data_ptr(),
                                       weights.stored.stride(0) * 4,
                                       WeightFormat::kFloat32,
                                       experts.const_data_ptr<int32_t>(),
                                       input.const_data_ptr<float>(),
                                       out.mutable_data_ptr<float>(),
                                       static_cast<int32_t>(experts.numel()),
                                       static_cast<int32_t>(rows_share),
                                       static_cast<int32_t>(weights.stored.size(0)),
                                       static_cast<int32_t>(input.size(1)),
                                       static_cast<int32_t>(weights.out())};
  EXPECT_EQ(specdec_cuda_expert_linear(&task, nullptr), 0);
  return out;
}

Tensor cuda_experts(const ExpertWeights& gate_up, const ExpertWeights& down, const Tensor& input,
                    const Routes& routes) {
  const int64_t chosen = routes.experts.size(1);
  const Tensor gates = cuda_expert_linear(gate_up, routes.experts, input, chosen);
  const int64_t pairs = gates.size(0);
  const Tensor gated = at::full({pairs, gates.size(1) / 2}, kNoOutput);
  const cuda::GatedActivationTask activation = {
      gates.const_data_ptr<float>(), gated.mutable_data_ptr<float>(), pairs, gated.size(1), false};
  EXPECT_EQ(specdec_cuda_gated_activation(&activation, nullptr), 0);
  const Tensor outputs = cuda_expert_linear(down, routes.experts, gated, 1);
  const Tensor out = at::full_like(input, kNoOutput);
  const cuda::ExpertSumTask sum = {
      outputs.const_data_ptr<float>(), routes.weights.const_data_ptr<float>(),
      out.mutable_data_ptr<float>(),   static_cast<int32_t>(input.size(0)),
      static_cast<int32_t>(chosen),    static_cast<int32_t>(input.size(1))};
  EXPECT_EQ(specdec_cuda_expert_sum(&sum, nullptr), 0);
  return out;
}

TEST(CudaExpertsTest, AppliesExpertsAsTheOpDoes) {
  at::manual_seed(42);
  const ExpertWeights gate_up = random_experts(6, 12, 18);
  const ExpertWeights down = random_experts(6, 18, 6);
  for (const int64_t rows : {1, 2, 45}) {
    cuda::emulation::set_seed(static_cast<uint64_t>(rows));
    const Tensor input = at::randn({rows, 18});
    const Routes routes = cuda_routes(at::randn({rows, 6}), at::ones({6}), 3);
    const auto pairs = routes.experts.numel();
    ExpertBuffers buffers{at::empty({pairs, 18}),
                          at::empty({pairs, 12}),
                          at::empty({pairs, 6}),
                          at::empty({pairs, 18}),
                          {},
                          {}};
    Tensor expected = at::empty_like(input);
    apply_experts({gate_up.host, down.host}, input, routes, buffers, expected);
    const Tensor out = cuda_experts(gate_up, down, input, routes);
    const auto largest = expected.abs().max().item<double>();
    EXPECT_TRUE(at::allclose(out, expected, 1e-4, 1e-5 * largest)) << rows;
  }
}

TEST(CudaExpertsTest, APairAmongOthersHasItsOwnBits) {
  at::manual_seed(43);
  const ExpertWeights weights = random_experts(3, 10, 300);
  const Tensor input = at::randn({40, 300});
  input[6].fill_(kNoOutput);
  const Tensor experts = at::randint(0, 3, {40}, at::kInt);
  const Tensor all = cuda_expert_linear(weights, experts, input, 1);
  for (const int64_t pair : {0, 5, 31, 39}) {
    for (const int64_t pairs : {1, 3, 12}) {
      const int64_t first = std::min(pair, 40 - pairs);
      cuda::emulation::set_seed(static_cast<uint64_t>(pair + pairs));
      const Tensor some = cuda_expert_linear(weights, experts.narrow(0, first, pairs).contiguous(),
                                             input.narrow(0, first, pairs).clone(), 1);
      EXPECT_TRUE(at::equal(some[pair - first], all[pair])) << pair << " of " << pairs;
    }
  }
}

/// An expert that nobody chose may lie in memory that cannot be read.
TEST(CudaExpertsTest, ReadsChosenExpertsAlone) {
  at::manual_seed(44);
  const ExpertWeights weights = random_experts(4, 6, 40);
  weights.stored[1].fill_(kNoOutput);
  weights.stored[3].fill_(kNoOutput);
  const Tensor experts = at::tensor({2, 0, 2, -1, 2, 2, 2, 4}, at::kInt);
  const Tensor out = cuda_expert_linear(weights, experts, at::randn({8, 40}), 1);
  const Tensor written = out.isnan().logical_not();
  for (const int64_t pair : {0, 1, 2, 4, 5, 6}) {
    EXPECT_TRUE(written[pair].all().item<bool>()) << pair;
  }
  EXPECT_FALSE(written[3].any().item<bool>());  // no experts
  EXPECT_FALSE(written[7].any().item<bool>());
}

TEST(CudaExpertsTest, RefusesWhatItCannotTake) {
  cuda::RouteTask route_task{};
  route_task.rows = 1;
  route_task.count = 4;
  route_task.chosen = 5;
  EXPECT_EQ(specdec_cuda_route(&route_task, nullptr), cuda::kInvalidValue);
  cuda::ExpertLinearTask task{};
  task.format = WeightFormat::kQ5K;
  task.pairs = 1;
  task.rows_share = 1;
  task.outputs = 1;
  task.in = 256;
  EXPECT_EQ(specdec_cuda_expert_linear(&task, nullptr), cuda::kInvalidValue);
}

}  // namespace
}  // namespace specdec
