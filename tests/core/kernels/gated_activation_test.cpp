#include "core/kernels/gated_activation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <ostream>

#include "core/error.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

struct Case {
  at::ScalarType dtype;
  Activation activation;
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.dtype << (one.activation == Activation::kSilu ? " silu" : " gelu_tanh");
}

class GatedActivationTest : public testing::TestWithParam<Case> {
 protected:
  static Tensor run(const Tensor& gate_up) {
    Tensor out = at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
    gated_activation(gate_up, GetParam().activation, out);
    return out;
  }
};

Tensor exact(const Tensor& gate_up, Activation activation) {
  const auto parts = gate_up.to(at::kDouble).chunk(2, 1);
  return (activation == Activation::kSilu ? at::silu(parts[0]) : at::gelu(parts[0], "tanh")) *
         parts[1];
}

TEST_P(GatedActivationTest, EqualsTheDefinitionForOddSizes) {
  at::manual_seed(1);
  const double tolerance = GetParam().dtype == at::kFloat ? 2e-6 : 4e-15;
  for (const int64_t size : {1, 7, 16, 40, 129}) {
    const Tensor gate_up = at::randn({3, 2 * size}, GetParam().dtype) * 2;
    const Tensor difference = run(gate_up).to(at::kDouble) - exact(gate_up, GetParam().activation);
    EXPECT_LT(difference.abs().max().item<double>(), tolerance) << size;
  }
}

TEST_P(GatedActivationTest, IsFiniteAndRightForLargeGates) {
  const Tensor gate = at::tensor({-1e4, -800.0, 0.0, 50.0, 1e4}, GetParam().dtype);
  const Tensor out = run(at::cat({gate, at::ones_like(gate)}).view({1, 10}));
  EXPECT_TRUE(at::allclose(out[0], at::clamp_min(gate, 0), 0, 1e-20)) << out;
}

TEST_P(GatedActivationTest, PropagatesNotANumber) {
  Tensor gate_up = at::ones({1, 4}, GetParam().dtype);
  gate_up[0][1] = std::nan("");
  const Tensor out = run(gate_up);
  EXPECT_FALSE(out.isnan()[0][0].item<bool>());
  EXPECT_TRUE(out.isnan()[0][1].item<bool>());
}

INSTANTIATE_TEST_SUITE_P(All, GatedActivationTest,
                         testing::Values(Case{at::kFloat, Activation::kGeluTanh},
                                         Case{at::kDouble, Activation::kGeluTanh},
                                         Case{at::kFloat, Activation::kSilu},
                                         Case{at::kDouble, Activation::kSilu}),
                         ParameterName());

TEST(GatedActivationRowsTest, OthersStayAsTheyAre) {
  const Tensor gate_up = at::randn({5, 2 * 70});
  Tensor all = at::empty({5, 70});
  gated_activation(gate_up, Activation::kSilu, all);
  Tensor some = at::full({5, 70}, 7.0F);
  gated_activation(gate_up, Activation::kSilu, {1, 4}, some);
  EXPECT_TRUE(at::equal(some.narrow(0, 1, 3), all.narrow(0, 1, 3)));
  EXPECT_TRUE((some[0] == 7.0F).all().item<bool>() && (some[4] == 7.0F).all().item<bool>());
  EXPECT_THROW(gated_activation(gate_up, Activation::kSilu, {1, 6}, some), InternalError);
}

TEST(GatedActivationChecksTest, RefusesOperandsThatDoNotFit) {
  Tensor out = at::zeros({2, 4});
  const auto call = [&](const Tensor& gate_up) {
    gated_activation(gate_up, Activation::kSilu, out);
  };
  EXPECT_THROW(call(at::zeros({2, 4})), InternalError);
  EXPECT_THROW(call(at::zeros({1, 8})), InternalError);
  EXPECT_THROW(call(at::zeros({2, 8}, at::kDouble)), InternalError);
}

}  // namespace
}  // namespace specdec
