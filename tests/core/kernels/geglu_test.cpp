#include "core/kernels/geglu.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace specdec {
namespace {

class GegluTest : public testing::TestWithParam<at::ScalarType> {};

Tensor exact_geglu(const Tensor& gate_up) {
  const auto parts = gate_up.to(at::kDouble).chunk(2, 1);
  return at::gelu(parts[0], "tanh") * parts[1];
}

TEST_P(GegluTest, EqualsGeluTanhForOddSizes) {
  at::manual_seed(1);
  const double tolerance = GetParam() == at::kFloat ? 2e-6 : 4e-15;
  for (const int64_t size : {1, 7, 16, 40, 129}) {
    const Tensor gate_up = at::randn({3, 2 * size}, GetParam()) * 2;
    Tensor out = at::empty({3, size}, GetParam());
    geglu(gate_up, out);
    const Tensor exact = exact_geglu(gate_up);
    EXPECT_LT((out.to(at::kDouble) - exact).abs().max().item<double>(), tolerance) << size;
  }
}

TEST_P(GegluTest, IsFiniteAndRightForLargeGates) {
  const Tensor gate = at::tensor({-1e4, -50.0, -20.0, 0.0, 20.0, 50.0, 1e4}, GetParam());
  const Tensor gate_up = at::cat({gate, at::ones_like(gate)}).view({1, 14});
  Tensor out = at::empty({1, 7}, GetParam());
  geglu(gate_up, out);
  EXPECT_TRUE(at::allclose(out[0], at::clamp_min(gate, 0), 0, 1e-20)) << out;
}

TEST_P(GegluTest, PropagatesNotANumber) {
  Tensor gate_up = at::ones({1, 4}, GetParam());
  gate_up[0][1] = std::nan("");
  Tensor out = at::empty({1, 2}, GetParam());
  geglu(gate_up, out);
  EXPECT_FALSE(out.isnan()[0][0].item<bool>());
  EXPECT_TRUE(out.isnan()[0][1].item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, GegluTest, testing::Values(at::kFloat, at::kDouble));

TEST(GegluChecksTest, RefusesOperandsThatDoNotFit) {
  Tensor out = at::zeros({2, 4});
  EXPECT_THROW(geglu(at::zeros({2, 4}), out), InternalError);
  EXPECT_THROW(geglu(at::zeros({1, 8}), out), InternalError);
  EXPECT_THROW(geglu(at::zeros({2, 8}, at::kDouble), out), InternalError);
}

}  // namespace
}  // namespace specdec
