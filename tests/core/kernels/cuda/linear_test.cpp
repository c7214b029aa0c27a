#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/linear_product.h"
#include "core/kernels/linear_rows.h"
#include "core/kernels/stored_rows.h"
#include "tests/support/stored_blocks.h"

namespace specdec {
namespace {

/// A matrix for both.
struct Matrix {
  Linear host, device;

  const void* stored() const { return device.parts().front().packed.const_data_ptr(); }
  cuda::CudaWeights format() const { return cuda::cuda_format(device.format()); }
};

Matrix random_matrix(WeightFormat format, int64_t out, int64_t in, const Tensor& bias) {
  const Placement rows{at::kCPU, WeightLayout::kRows};
  if (!is_in_blocks(format)) {
    const Tensor weight = at::randn({out, in}).to(scalar_type(format));
    return {Linear(weight, format, bias), Linear(weight, format, bias, rows)};
  }
  const StoredRows stored = random_stored_rows(format, out, in, 11);
  Matrix matrix{stored.packed(), stored.packed(rows)};
  if (bias.defined()) {
    matrix.host.set_bias(bias);
  }
  return matrix;
}

Tensor cuda_linear(const Matrix& matrix, const Tensor& bias, const Tensor& input) {
  const Tensor out =
      at::full({input.size(0), matrix.host.out()}, std::numeric_limits<float>::quiet_NaN());
  const cuda::LinearTask task = {matrix.stored(),
                                 matrix.format(),
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

class CudaLinearTest : public testing::TestWithParam<WeightFormat> {
 protected:
  void SetUp() override {
    at::manual_seed(4);
    cuda::emulation::set_seed(4);
  }

  /// Numbers of inputs that the format can have; odd ones where it can.
  static std::vector<int64_t> inputs() {
    if (!is_in_blocks(GetParam())) {
      return {1, 20, 24, 333, 1032};
    }
    const int64_t block = std::max(kBlockInputs, block_values(stored_dtype(GetParam())));
    return {block, block * (1120 / block)};
  }
};

TEST_P(CudaLinearTest, EqualsTheOp) {
  for (const int64_t in : inputs()) {
    for (const int64_t out : {1, 6, 18}) {
      const Tensor bias = out == 6 ? at::randn({out}) : Tensor();
      const Matrix matrix = random_matrix(GetParam(), out, in, bias);
      EXPECT_EQ(cuda_linear(matrix, bias, at::empty({0, in})).numel(), 0);
      for (const int64_t rows : {1, 2, 9, 33}) {
        const Tensor input = at::randn({rows, in});
        const Tensor expected = linear_product(matrix.host, input);
        const Tensor result = cuda_linear(matrix, bias, input);
        const Tensor bound = at::matmul(input.abs(), matrix.host.unpack().to(at::kFloat).abs().t());
        EXPECT_TRUE(((result - expected).abs() <= bound * 2e-6 + 1e-6).all().item<bool>())
            << rows << " x " << in << " x " << out;
      }
    }
  }
}

TEST_P(CudaLinearTest, ARowAmongOthersHasItsOwnBits) {
  const int64_t in = inputs().back();
  const Matrix matrix = random_matrix(GetParam(), 10, in, {});
  const Tensor input = at::randn({21, in});
  input[2].fill_(std::numeric_limits<float>::infinity());
  input[17].fill_(std::numeric_limits<float>::quiet_NaN());
  const Tensor all = cuda_linear(matrix, {}, input);
  for (const int64_t row : {0, 1, 16, 20}) {
    for (const int64_t rows : {1, 2, 8}) {
      const int64_t first = std::min(row, 21 - rows);
      cuda::emulation::set_seed(static_cast<uint64_t>(row + rows));
      const Tensor some = cuda_linear(matrix, {}, input.narrow(0, first, rows).clone());
      EXPECT_TRUE(at::equal(some[row - first], all[row])) << row << " of " << rows;
    }
  }
}

/// Rows of a table, by the kernel and as the host reads them in either layout.
void expect_rows(WeightFormat format, int64_t in) {
  const Matrix matrix = random_matrix(format, 9, in, {});
  const Tensor ids = at::tensor({8, 0, 3, 3}, at::kInt);
  const Tensor out = at::empty({4, in});
  const cuda::EmbedRowsTask task = {matrix.stored(),
                                    matrix.format(),
                                    ids.const_data_ptr<int32_t>(),
                                    out.mutable_data_ptr<float>(),
                                    2.5F,
                                    4,
                                    static_cast<int32_t>(in),
                                    9};
  ASSERT_EQ(specdec_cuda_embed_rows(&task, nullptr), 0);
  const Tensor rows = linear_rows(matrix.host, ids);
  EXPECT_TRUE(at::equal(out, rows * 2.5F)) << format_name(format);
  EXPECT_TRUE(at::equal(linear_rows(matrix.device, ids), rows)) << format_name(format);
}

TEST_P(CudaLinearTest, ReadsRowsByTheirIds) { expect_rows(GetParam(), inputs().back()); }

/// They differ in their tables alone, of which two are those of tests above.
TEST(CudaCodebookTest, EachFormatHasItsTable) {
  for (auto format = WeightFormat::kIq1S; has_codebook(format);
       format = static_cast<WeightFormat>(static_cast<int>(format) + 1)) {
    expect_rows(format, 512);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, CudaLinearTest,
    testing::Values(WeightFormat::kFloat32, WeightFormat::kBFloat16, WeightFormat::kFloat16,
                    WeightFormat::kInt8, WeightFormat::kQ40, WeightFormat::kQ41, WeightFormat::kQ50,
                    WeightFormat::kQ51, WeightFormat::kQ4K, WeightFormat::kQ5K, WeightFormat::kQ6K,
                    WeightFormat::kFp8x128, WeightFormat::kFp8x32, WeightFormat::kInt4x128,
                    WeightFormat::kInt4x32, WeightFormat::kFp4x16, WeightFormat::kNf4x32),
    [](const auto& info) { return format_name(info.param); });

TEST(CudaLinearChecksTest, RefusesInputsThatAreNotWholeBlocks) {
  cuda::LinearTask task{};
  task.format = cuda::CudaWeights::kQ4K;
  task.rows = 1;
  task.outputs = 1;
  task.in = 128;
  EXPECT_EQ(specdec_cuda_linear(&task, nullptr), 1);
}

}  // namespace
}  // namespace specdec
