#include "core/kernels/soft_cap.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace specdec {
namespace {

class SoftCapTest : public testing::TestWithParam<at::ScalarType> {};

TEST_P(SoftCapTest, EqualsTheDefinition) {
  at::manual_seed(3);
  const double tolerance = GetParam() == at::kFloat ? 1e-5 : 1e-14;
  for (const int64_t size : {1, 7, 16, 515}) {
    Tensor values = at::randn({3, size}, GetParam()) * 40;
    const Tensor wanted = (values.to(at::kDouble) / 30.0).tanh() * 30.0;
    soft_cap(values, 30.0);
    EXPECT_LE((values.to(at::kDouble) - wanted).abs().max().item<double>(), tolerance) << size;
  }
}

/// A token's logits have the same bits whether it is decoded alone or in a draft.
TEST_P(SoftCapTest, BitsDependOnTheValueAlone) {
  at::manual_seed(4);
  const Tensor logits = at::randn({9, 515}, GetParam()) * 40;
  Tensor together = logits.clone();
  soft_cap(together, 30.0);
  for (int64_t row = 0; row < logits.size(0); ++row) {
    Tensor alone = logits.narrow(0, row, 1).clone();
    soft_cap(alone, 30.0);
    EXPECT_TRUE(at::equal(alone, together.narrow(0, row, 1))) << row;
  }
}

TEST_P(SoftCapTest, KeepsInfinitiesAtTheCapAndPropagatesNotANumber) {
  const double infinity = std::numeric_limits<double>::infinity();
  Tensor values = at::tensor({-infinity, infinity, std::nan("")}, GetParam());
  soft_cap(values, 5.0);
  EXPECT_EQ(values[0].item<double>(), -5.0);
  EXPECT_EQ(values[1].item<double>(), 5.0);
  EXPECT_TRUE(values.isnan()[2].item<bool>());
}

TEST_P(SoftCapTest, RefusesWhatItCannotCap) {
  Tensor columns = at::zeros({4, 6}, GetParam()).t();
  EXPECT_THROW(soft_cap(columns, 30.0), InternalError);
  Tensor values = at::zeros({4}, GetParam());
  EXPECT_THROW(soft_cap(values, 0.0), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, SoftCapTest, testing::Values(at::kFloat, at::kDouble),
                         [](const auto& test) { return std::string(c10::toString(test.param)); });

}  // namespace
}  // namespace specdec
