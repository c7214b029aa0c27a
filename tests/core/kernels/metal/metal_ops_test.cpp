// Each op by the Metal kernels, which run on the CPU, against the CPU's own.
#include "core/kernels/metal/metal_ops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/kernels/metal/metal_sources.h"
#include "core/sampling.h"
#include "tests/core/kernels/cluster_case.h"
#include "tests/core/kernels/metal/emulated_kernel.h"
#include "tests/core/kernels/metal/emulated_queue.h"
#include "tests/support/max_difference.h"

namespace specdec {
namespace {

constexpr double kMetalEps = 1e-6;

class MetalOpsTest : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(1);
    cuda::emulation::set_seed(1);
  }

  std::shared_ptr<Ops> metal_ = mps::emulated_metal_ops();
  std::shared_ptr<Ops> cpu_ = cpu_ops();
};

TEST_F(MetalOpsTest, EveryKernelOfTheEmbeddedSourcesIsEmulated) {
  ASSERT_EQ(mps::metal_sources().size(), 10U);
  for (const auto& [name, kernel] : mps::emulated_kernels()) {
    const std::string source = name.substr(0, name.find('/'));
    bool found = false;
    for (const mps::MetalSource& one : mps::metal_sources()) {
      const std::string text = one.text;
      found = found || (source == one.name &&
                        text.find(name.substr(source.size() + 1)) != std::string::npos &&
                        text.find("#include \"") == std::string::npos);
    }
    EXPECT_TRUE(found) << name;
  }
}

TEST_F(MetalOpsTest, NormsEqualTheCpu) {
  for (const int64_t size : {1, 31, 257, 640}) {
    const Tensor input = at::randn({3, size}) * 3;
    const Tensor scale = at::randn({size}) + 1;
    Tensor out = at::full_like(input, NAN);
    metal_->rms_norm(input, scale, kMetalEps, out);
    EXPECT_TRUE(at::allclose(out, cpu_->rms_norm(input, scale, kMetalEps), 2e-6, 1e-6)) << size;
    Tensor expected = at::randn_like(input);
    out.copy_(expected);
    metal_->add_rms_norm(out, input, scale, kMetalEps);
    cpu_->add_rms_norm(expected, input, scale, kMetalEps);
    EXPECT_TRUE(at::allclose(out, expected, 2e-6, 2e-6)) << size;
  }
}

TEST_F(MetalOpsTest, ElementsEqualTheCpu) {
  const Tensor gate_up = at::randn({3, 2 * 333}) * 4;
  Tensor out = at::empty({3, 333});
  Tensor expected = at::empty_like(out);
  for (const auto activation : {Activation::kGeluTanh, Activation::kSilu}) {
    metal_->gated_activation(gate_up, activation, out);
    cpu_->gated_activation(gate_up, activation, expected);
    EXPECT_TRUE(at::allclose(out, expected, 2e-6, 2e-6));
  }
  metal_->soft_cap(out, 2.5);
  cpu_->soft_cap(expected, 2.5);
  EXPECT_TRUE(at::allclose(out, expected, 2e-6, 2e-6));
  metal_->copy(expected, out);
  EXPECT_TRUE(at::equal(out, expected));
  metal_->add(out, expected);
  EXPECT_TRUE(at::equal(out, expected + expected));
  metal_->scale(out, 0.25);
  EXPECT_TRUE(at::equal(out, expected / 2));
  const Tensor row = at::randn({333});
  metal_->multiply_rows(expected, row, out);
  EXPECT_TRUE(at::equal(out, expected * row));
  EXPECT_TRUE(at::equal(metal_->concat(expected, row.view({1, 333}).expand({3, 333}).contiguous()),
                        at::cat({expected, row.expand({3, 333})}, 1)));
}

TEST_F(MetalOpsTest, BestTokensAreThoseOfGreedyDecoding) {
  Tensor logits = at::randn({5, 1000});
  logits[1][7] = logits[1][900] = 9.0F;  // a tie
  logits[2][3] = NAN;
  logits[3].fill_(-std::numeric_limits<float>::infinity());
  Tensor found = at::empty({15}, at::kInt);
  metal_->find_best(logits, found);
  const auto* ids = found.const_data_ptr<int32_t>();
  const Tensor largest = found.narrow(0, 5, 10).view(at::kFloat);
  for (const int64_t row : {0, 1, 4}) {
    const GreedyChoice wanted = greedy_choice(LogitRow::of(logits, row), {}, {});
    EXPECT_EQ(ids[row], wanted.token);
    EXPECT_EQ(static_cast<double>(largest[2 * row].item<float>()) -
                  static_cast<double>(largest[2 * row + 1].item<float>()),
              wanted.gap);
  }
  EXPECT_EQ(ids[2], -1);
}

TEST_F(MetalOpsTest, ExpertsEqualTheCpu) {
  const Placement rows{at::kCPU, WeightLayout::kRows};
  std::vector<Linear> gate_up, down, host_gate_up, host_down;
  for (int expert = 0; expert < 5; ++expert) {
    const Tensor first = at::randn({2 * 48, 32}) * 0.2;
    const Tensor second = at::randn({32, 48}) * 0.2;
    gate_up.emplace_back(first, WeightFormat::kFloat32, Tensor(), rows);
    down.emplace_back(second, WeightFormat::kFloat32, Tensor(), rows);
    host_gate_up.emplace_back(first, WeightFormat::kFloat32);
    host_down.emplace_back(second, WeightFormat::kFloat32);
  }
  join_rows(gate_up);
  join_rows(down);
  Tensor logits = at::randn({6, 5});
  logits[0][1] = logits[0][3] = 4.0F;
  const Tensor input = at::randn({6, 32});
  const auto evaluate = [&](Ops& ops, const ExpertMatrices& experts) {
    Routes routes{at::empty({6, 2}, at::kInt), at::empty({6, 2})};
    ops.route(logits, at::arange(5).to(at::kFloat) + 1, routes);
    ExpertBuffers buffers{at::empty({12, 32}), at::empty({12, 96}),      at::empty({12, 48}),
                          at::empty({12, 32}), std::vector<int64_t>(12), std::vector<int64_t>(5)};
    Tensor out = at::empty({6, 32});
    ops.apply_experts(experts, input, routes, buffers, out);
    return std::pair(routes, out);
  };
  const auto [routes, out] = evaluate(*metal_, {gate_up, down});
  const auto [host_routes, expected] = evaluate(*cpu_, {host_gate_up, host_down});
  EXPECT_TRUE(at::equal(routes.experts, host_routes.experts));
  EXPECT_TRUE(at::allclose(routes.weights, host_routes.weights, 2e-6, 2e-6));
  EXPECT_TRUE(at::allclose(out, expected, 1e-5, 1e-5));
}

// No kernel of its own: gathered rows, and the kernel of a product.
TEST_F(MetalOpsTest, TokensOfTheBestClustersAreScored) {
  const ClusterCase head(WeightFormat::kFloat32, 16, {at::kCPU, WeightLayout::kRows});
  const Tensor states = at::randn({5, 16});
  const Tensor scores = ClusterCase::tied_scores();
  const Tensor mask = head.chosen_tokens(scores, 3);
  const Tensor logits = head.logits(*metal_, scores, states, 3);
  const Tensor exact = at::matmul(states.to(at::kDouble), head.values.t());
  EXPECT_TRUE(at::allclose(logits.masked_select(mask).to(at::kDouble), exact.masked_select(mask),
                           1e-5, 1e-6));
  EXPECT_TRUE(at::equal(logits, ClusterCase::filled(logits, mask, CentroidFill::kBelowMinimum)));
}

TEST_F(MetalOpsTest, WhatNoKernelTakesIsAnError) {
  const Linear doubles(at::randn({4, 4}), WeightFormat::kFloat64, Tensor(),
                       Placement{at::kCPU, WeightLayout::kRows});
  EXPECT_THROW(metal_->linear(doubles, at::randn({1, 4})), Error);
}

}  // namespace
}  // namespace specdec
