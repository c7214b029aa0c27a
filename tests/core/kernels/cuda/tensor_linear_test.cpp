#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"
#include "core/kernels/linear.h"

namespace specdec {
namespace {

/// A bfloat16 matrix as tensor cores take it.
class TensorMatrix {
 public:
  explicit TensorMatrix(const Tensor& weight)
      : out_(weight.size(0)), in_(weight.size(1)), fragments_(at::full({bytes()}, 255, at::kByte)) {
    const cuda::PackFragmentsTask task = {weight.const_data_ptr(), fragments_.mutable_data_ptr(),
                                          static_cast<int32_t>(out_), static_cast<int32_t>(in_)};
    EXPECT_EQ(specdec_cuda_pack_fragments(&task, nullptr), 0);
  }

  Tensor apply(const Tensor& input, const Tensor& bias = {}) const {
    const Tensor out = at::full({input.size(0), out_ + 2}, std::numeric_limits<float>::quiet_NaN());
    const int64_t bytes = cuda::specdec_cuda_split_bytes(static_cast<int32_t>(input.size(0)),
                                                         static_cast<int32_t>(in_));
    const Tensor workspace = at::full({bytes}, 255, at::kByte);
    const cuda::TensorLinearTask task = {fragments_.const_data_ptr(),
                                         bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                                         input.const_data_ptr<float>(),
                                         workspace.mutable_data_ptr(),
                                         out.mutable_data_ptr<float>(),
                                         out_ + 2,
                                         static_cast<int32_t>(input.size(0)),
                                         static_cast<int32_t>(in_),
                                         static_cast<int32_t>(out_)};
    EXPECT_EQ(specdec_cuda_tensor_linear(&task, nullptr), 0);
    EXPECT_TRUE(out.narrow(1, out_, 2).isnan().all().item<bool>());
    return out.narrow(1, 0, out_).contiguous();
  }

 private:
  int64_t bytes() const {
    return cuda::specdec_cuda_fragment_bytes(static_cast<int32_t>(out_), static_cast<int32_t>(in_));
  }

  int64_t out_, in_;
  Tensor fragments_;
};

TEST(CudaTensorLinearTest, EqualsTheProductInFloat64) {
  at::manual_seed(12);
  for (const int64_t in : {1, 16, 63, 200, 1100}) {
    for (const int64_t out : {1, 16, 35}) {
      const Tensor weight = at::randn({out, in}).to(at::kBFloat16);
      const Tensor bias = out == 35 ? at::randn({out}) : Tensor();
      const TensorMatrix matrix(weight);
      const Linear host(weight, WeightFormat::kBFloat16, bias);
      for (const int64_t rows : {0, 1, 8, 9, 33, 65}) {
        cuda::emulation::set_seed(static_cast<uint64_t>(rows));
        const Tensor input = at::randn({rows, in}) * at::randn({rows, 1}).exp();
        const Tensor result = matrix.apply(input, bias);
        Tensor exact = at::matmul(input.to(at::kDouble), weight.to(at::kDouble).t());
        // What float32 would round: some units in the last place of the terms' magnitudes.
        Tensor bound = at::matmul(input.abs().to(at::kDouble), weight.abs().to(at::kDouble).t());
        if (bias.defined()) {
          exact += bias;
          bound += bias.abs();
        }
        EXPECT_TRUE(((result - exact).abs() <= bound * 5e-7).all().item<bool>())
            << rows << " x " << in << " x " << out;
        EXPECT_TRUE(((result - host.apply(input)).abs() <= bound * 1e-6).all().item<bool>());
      }
    }
  }
}

TEST(CudaTensorLinearTest, ManyOutputsAreComputedInPairsOfTiles) {
  at::manual_seed(14);
  const Tensor weight = at::randn({8209, 70}).to(at::kBFloat16);
  const TensorMatrix all(weight);
  const TensorMatrix last(weight.narrow(0, 8208, 1).clone());
  for (const int64_t rows : {1, 19}) {
    const Tensor input = at::randn({rows, 70});
    const Tensor result = all.apply(input);
    const Tensor exact = at::matmul(input.to(at::kDouble), weight.to(at::kDouble).t());
    EXPECT_LT((result - exact).abs().max().item<double>(), 1e-5);
    EXPECT_TRUE(at::equal(result.narrow(1, 8208, 1), last.apply(input)));
  }
}

TEST(CudaTensorLinearTest, ARowAmongOthersHasItsOwnBits) {
  at::manual_seed(13);
  const TensorMatrix matrix(at::randn({20, 700}).to(at::kBFloat16));
  const Tensor input = at::randn({70, 700});
  input[3].fill_(std::numeric_limits<float>::infinity());
  input[40].fill_(std::numeric_limits<float>::quiet_NaN());
  const Tensor all = matrix.apply(input);
  for (const int64_t row : {0, 2, 41, 69}) {
    for (const int64_t rows : {1, 2, 8, 20, 64}) {
      const int64_t first = std::min(row, 70 - rows);
      cuda::emulation::set_seed(static_cast<uint64_t>(row + rows));
      const Tensor some = matrix.apply(input.narrow(0, first, rows).clone());
      EXPECT_TRUE(at::equal(some[row - first], all[row])) << row << " of " << rows;
    }
  }
}

TEST(CudaTensorLinearTest, SplitsNumbersThatAreLargeSmallOrInfinite) {
  const TensorMatrix matrix(at::eye(8).to(at::kBFloat16));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Tensor input = at::tensor({1.0F / 3, 0x1.FFFFFEp100F, -0x1.234566p-90F, 65537.0F, 0.0F,
                                   16777215.0F, -1e-30F, 3.0F})
                           .view({1, 8});
  EXPECT_TRUE(at::equal(matrix.apply(input), input));
  input.zero_();
  input[0][2] = -kInfinity;
  EXPECT_EQ(matrix.apply(input)[0][2].item<float>(), -kInfinity);
}

TEST(CudaTensorLinearTest, RefusesFragmentsThatAreNotAligned) {
  const Tensor memory = at::empty({4096}, at::kByte);
  auto* bytes = memory.mutable_data_ptr<uint8_t>();
  const cuda::PackFragmentsTask pack = {bytes, bytes + 8, 16, 16};
  EXPECT_EQ(specdec_cuda_pack_fragments(&pack, nullptr), cuda::kInvalidValue);
  cuda::TensorLinearTask task{};
  task.fragments = bytes;
  task.workspace = bytes + 4;
  task.rows = 1;
  task.in = 16;
  task.outputs = 16;
  EXPECT_EQ(specdec_cuda_tensor_linear(&task, nullptr), cuda::kInvalidValue);
}

}  // namespace
}  // namespace specdec
