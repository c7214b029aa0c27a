// Products of rows by the Metal kernels, which run on the CPU, in each format.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"
#include "tests/core/kernels/metal/emulated_queue.h"
#include "tests/support/stored_blocks.h"

namespace specdec {
namespace {

class MetalLinearTest : public testing::TestWithParam<WeightFormat> {
 protected:
  static Linear matrix(int64_t out, int64_t in, const Tensor& bias) {
    const Placement rows{at::kCPU, WeightLayout::kRows};
    if (is_in_blocks(GetParam()) && GetParam() != WeightFormat::kInt8) {
      return stored_linear(out, in, bias, rows);
    }
    return Linear(at::randn({out, in}), GetParam(), bias, rows);
  }

  /// A matrix of random blocks.
  static Linear stored_linear(int64_t out, int64_t in, const Tensor& bias, const Placement& place) {
    Linear linear = random_stored_rows(GetParam(), out, in, 3).packed(place);
    linear.set_bias(bias);
    return linear;
  }

  std::shared_ptr<Ops> metal_ = mps::emulated_metal_ops();
};

TEST_P(MetalLinearTest, EqualsTheSumInFloat64) {
  at::manual_seed(5);
  for (const int64_t in : {1280, is_in_blocks(GetParam()) ? 256 : 333}) {
    const Tensor bias = at::randn({13});
    const Linear linear = matrix(13, in, bias);
    const Tensor weight = linear.unpack().to(at::kDouble);
    const Tensor input = at::randn({9, in});
    const Tensor out = metal_->linear(linear, input);
    const Tensor wide = input.to(at::kDouble);
    const Tensor wanted = at::matmul(wide, weight.t()) + bias;
    const Tensor terms = at::matmul(wide.abs(), weight.abs().t()) + 1;
    EXPECT_TRUE(((out - wanted).abs() <= 1e-6 * terms).all().item<bool>()) << in;
  }
}

/// Rows of random numbers; of some all, of others one is not finite.
Tensor rows_beside_infinities(int64_t rows, int64_t in) {
  Tensor input = at::randn({rows, in});
  for (int64_t row = 1; row < rows; row += 4) {
    input[row].fill_(row % 8 == 1 ? NAN : std::numeric_limits<float>::infinity());
    input[std::min(row + 1, rows - 1)][row] = row % 8 == 1 ? -INFINITY : NAN;
  }
  return input;
}

TEST_P(MetalLinearTest, ARowHasItsOwnBitsAmongUpTo64) {
  at::manual_seed(7);
  const int64_t in = is_in_blocks(GetParam()) ? 1280 : 333;
  const Linear linear = matrix(6, in, at::randn({6}));
  const Tensor input = rows_beside_infinities(64, in);
  std::map<int64_t, Tensor> alone;
  for (const int64_t row : {0, 1, 2, 3, 4, 6, 7, 8, 16, 63}) {
    cuda::emulation::set_seed(static_cast<uint64_t>(row));
    alone[row] = metal_->linear(linear, input.narrow(0, row, 1).contiguous())[0];
  }
  for (const int64_t rows : {2, 3, 5, 7, 8, 9, 17, 64}) {
    const Tensor out = metal_->linear(linear, input.narrow(0, 0, rows));
    for (const auto& [row, wanted] : alone) {
      if (row >= rows) {
        continue;
      }
      EXPECT_TRUE(at::equal(out[row].view(at::kInt), wanted.view(at::kInt)) ||
                  (out[row].isnan().all() & wanted.isnan().all()).item<bool>())
          << row << " of " << rows;
    }
    EXPECT_TRUE(out[0].isfinite().all().item<bool>());
  }
}

TEST_P(MetalLinearTest, EightRowsReadTheWeightsOnce) {
  const Linear linear = matrix(64, 256, at::zeros({64}));
  for (const int64_t rows : {1, 2, 8, 9}) {
    std::vector<mps::KernelLaunch> launches;
    (void)mps::emulated_metal_ops(&launches)->linear(linear, at::randn({rows, 256}));
    ASSERT_EQ(launches.size(), 1U);
    EXPECT_EQ(launches[0].groups[0], 16U);
    EXPECT_EQ(launches[0].groups[1], rows > 8 ? 2U : 1U) << rows;
    EXPECT_LE(launches[0].group_bytes, 1024U) << "memory of a group limits how many run at once";
  }
}

TEST_P(MetalLinearTest, RowsOfATableAreItsWeights) {
  at::manual_seed(6);
  const Linear linear = matrix(7, 256, at::zeros({7}));
  const Tensor ids = at::tensor({6, 0, 3}, at::kInt);
  const Tensor wanted = linear.unpack().to(at::kFloat).index_select(0, ids);
  EXPECT_TRUE(at::equal(metal_->embed_rows(linear, ids, 2.0), wanted * 2));
}

/// All but float64.
std::vector<WeightFormat> metal_formats() {
  std::vector<WeightFormat> formats;
  for (int i = static_cast<int>(WeightFormat::kFloat32); i <= static_cast<int>(kLastFormat); ++i) {
    formats.push_back(static_cast<WeightFormat>(i));
  }
  return formats;
}

INSTANTIATE_TEST_SUITE_P(All, MetalLinearTest, testing::ValuesIn(metal_formats()),
                         [](const auto& info) { return format_name(info.param); });

}  // namespace
}  // namespace specdec
