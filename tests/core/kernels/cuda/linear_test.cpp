#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"
#include "core/kernels/linear_product.h"

namespace specdec {
namespace {

/// [rows, in] * weight^T + bias, by the kernel.
Tensor cuda_linear(const Tensor& weight, const Tensor& bias, const Tensor& input) {
  const Tensor out =
      at::full({input.size(0), weight.size(0)}, std::numeric_limits<float>::quiet_NaN());
  const cuda::LinearTask task = {weight.const_data_ptr<float>(),
                                 bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                                 input.const_data_ptr<float>(),
                                 out.mutable_data_ptr<float>(),
                                 out.size(1),
                                 static_cast<int32_t>(input.size(0)),
                                 static_cast<int32_t>(input.size(1)),
                                 static_cast<int32_t>(out.size(1))};
  EXPECT_EQ(specdec_cuda_linear(&task, nullptr), 0);
  return out;
}

class CudaLinearTest : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(4);
    cuda::emulation::set_seed(4);
  }
};

TEST_F(CudaLinearTest, EqualsTheOp) {
  for (const int64_t in : {1, 20, 24, 333, 1032}) {
    for (const int64_t out : {1, 6, 18}) {
      const Tensor bias = out == 6 ? at::randn({out}) : Tensor();
      const Tensor weight = at::randn({out, in});
      const Linear host(weight, WeightFormat::kFloat32, bias);
      EXPECT_EQ(cuda_linear(weight, bias, at::empty({0, in})).numel(), 0);
      for (const int64_t rows : {1, 2, 9, 33}) {
        const Tensor input = at::randn({rows, in});
        const Tensor expected = linear_product(host, input);
        const Tensor result = cuda_linear(weight, bias, input);
        const Tensor bound = at::matmul(input.abs(), weight.abs().t());
        EXPECT_TRUE(((result - expected).abs() <= bound * 2e-6 + 1e-6).all().item<bool>())
            << rows << " x " << in << " x " << out;
      }
    }
  }
}

TEST_F(CudaLinearTest, ARowAmongOthersHasItsOwnBits) {
  const Tensor weight = at::randn({10, 1032});
  const Tensor input = at::randn({21, 1032});
  input[2].fill_(std::numeric_limits<float>::infinity());
  input[17].fill_(std::numeric_limits<float>::quiet_NaN());
  const Tensor all = cuda_linear(weight, {}, input);
  for (const int64_t row : {0, 1, 16, 20}) {
    for (const int64_t rows : {1, 2, 8}) {
      const int64_t first = std::min(row, 21 - rows);
      cuda::emulation::set_seed(static_cast<uint64_t>(row + rows));
      const Tensor some = cuda_linear(weight, {}, input.narrow(0, first, rows).clone());
      EXPECT_TRUE(at::equal(some[row - first], all[row])) << row << " of " << rows;
    }
  }
}

TEST_F(CudaLinearTest, ReadsRowsByTheirIds) {
  const Tensor weight = at::randn({9, 333});
  const Tensor ids = at::tensor({8, 0, 3, 3}, at::kInt);
  const Tensor out = at::empty({4, 333});
  cuda::EmbedRowsTask task = {weight.const_data_ptr(),
                              WeightFormat::kFloat32,
                              ids.const_data_ptr<int32_t>(),
                              out.mutable_data_ptr<float>(),
                              2.5F,
                              4,
                              333,
                              9};
  ASSERT_EQ(specdec_cuda_embed_rows(&task, nullptr), 0);
  EXPECT_TRUE(at::equal(out, weight.index_select(0, ids) * 2.5F));
  task.format = WeightFormat::kBFloat16;
  EXPECT_EQ(specdec_cuda_embed_rows(&task, nullptr), cuda::kInvalidValue);
}

}  // namespace
}  // namespace specdec
