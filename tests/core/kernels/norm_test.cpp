#include "core/kernels/norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/max_difference.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

constexpr double kNormEps = 1e-6;

Tensor exact_norm(const Tensor& input, const Tensor& scale) {
  const Tensor x = input.to(at::kDouble);
  return x * at::rsqrt(x.square().mean(1, true) + kNormEps) * scale.to(at::kDouble);
}

class NormTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  double tolerance() const { return GetParam() == at::kFloat ? 2e-6 : 1e-14; }
};

TEST_P(NormTest, EqualsTheFormulaForOddSizes) {
  at::manual_seed(1);
  for (const int64_t size : {1, 5, 16, 24, 48, 192, 193}) {
    const Tensor input = at::randn({3, size}, GetParam());
    const Tensor scale = at::randn({size}, GetParam());
    Tensor out = at::empty_like(input);
    rms_norm(input, scale, kNormEps, out);
    EXPECT_LT(max_difference(out, exact_norm(input, scale)), tolerance()) << size;
  }
}

TEST_P(NormTest, AddsToTheResidual) {
  at::manual_seed(2);
  const Tensor input = at::randn({4, 50}, GetParam());
  const Tensor scale = at::randn({50}, GetParam());
  Tensor residual = at::randn({4, 50}, GetParam());
  const Tensor exact = residual.to(at::kDouble) + exact_norm(input, scale);
  add_rms_norm(residual, input, scale, kNormEps);
  EXPECT_LT(max_difference(residual, exact), tolerance());
}

TEST_P(NormTest, MayWriteOverItsInput) {
  at::manual_seed(3);
  Tensor input = at::randn({4, 50}, GetParam());
  const Tensor scale = at::randn({50}, GetParam());
  const Tensor exact = exact_norm(input, scale);
  rms_norm(input, scale, kNormEps, input);
  EXPECT_LT(max_difference(input, exact), tolerance());
}

TEST_P(NormTest, ZerosStayZero) {
  const Tensor input = at::zeros({1, 20}, GetParam());
  Tensor out = at::ones_like(input);
  rms_norm(input, at::ones({20}, GetParam()), kNormEps, out);
  EXPECT_TRUE(at::equal(out, input));
}

TEST_P(NormTest, RowsDoNotDependOnEachOther) {
  at::manual_seed(4);
  const Tensor input = at::randn({9, 70}, GetParam());
  const Tensor scale = at::randn({70}, GetParam());
  Tensor all = at::empty_like(input);
  rms_norm(input, scale, kNormEps, all);
  for (int64_t row = 0; row < 9; ++row) {
    Tensor one = at::empty({1, 70}, GetParam());
    rms_norm(input.narrow(0, row, 1), scale, kNormEps, one);
    EXPECT_TRUE(at::equal(one, all.narrow(0, row, 1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, NormTest, testing::Values(at::kFloat, at::kDouble),
                         ParameterName());

TEST(NormChecksTest, RefusesOperandsThatDoNotFit) {
  const Tensor input = at::zeros({2, 8});
  Tensor out = at::zeros({2, 8});
  EXPECT_THROW(rms_norm(input, at::ones({9}), kNormEps, out), InternalError);
  EXPECT_THROW(rms_norm(input, at::ones({8}, at::kDouble), kNormEps, out), InternalError);
  Tensor fewer = at::zeros({1, 8});
  EXPECT_THROW(rms_norm(input, at::ones({8}), kNormEps, fewer), InternalError);
  EXPECT_THROW(add_rms_norm(out, at::zeros({8, 2}).t(), at::ones({8}), kNormEps), InternalError);
}

}  // namespace
}  // namespace specdec
