#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <ostream>
#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/linear_product.h"
#include "core/kernels/linear_rows.h"
#include "tests/support/parameter_name.h"
#include "tests/support/stored_blocks.h"

namespace specdec {
namespace {

struct CudaFormat {
  WeightFormat host;
  cuda::CudaWeights device;
};

void PrintTo(const CudaFormat& one, std::ostream* out) { *out << format_name(one.host); }

/// A matrix for both.
struct Matrix {
  Linear host;
  Tensor stored;  ///< bytes, row after row
  cuda::CudaWeights format;
};

Matrix random_matrix(const CudaFormat& format, int64_t out, int64_t in, const Tensor& bias) {
  if (!is_in_blocks(format.host)) {
    const Tensor weight = at::randn({out, in}).to(scalar_type(format.host));
    return {Linear(weight, format.host, bias), weight, format.device};
  }
  const StoredRows rows = random_stored_rows(format.host, out, in, 11);
  const auto row_bytes = static_cast<int64_t>(rows.bytes[0].size());
  const Tensor stored = at::empty({out, row_bytes}, at::kByte);
  for (int64_t row = 0; row < out; ++row) {
    std::memcpy(stored[row].mutable_data_ptr(), rows.bytes[static_cast<size_t>(row)].data(),
                static_cast<size_t>(row_bytes));
  }
  Linear host = rows.packed();
  if (bias.defined()) {
    host.set_bias(bias);
  }
  return {host, stored, format.device};
}

Tensor cuda_linear(const Matrix& matrix, const Tensor& bias, const Tensor& input) {
  const Tensor out =
      at::full({input.size(0), matrix.host.out()}, std::numeric_limits<float>::quiet_NaN());
  const cuda::LinearTask task = {matrix.stored.const_data_ptr(),
                                 matrix.format,
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

class CudaLinearTest : public testing::TestWithParam<CudaFormat> {
 protected:
  void SetUp() override {
    at::manual_seed(4);
    cuda::emulation::set_seed(4);
  }

  /// Numbers of inputs that the format can have; odd ones where it can.
  static std::vector<int64_t> inputs() {
    switch (GetParam().host) {
      case WeightFormat::kQ4K:
      case WeightFormat::kQ5K:
      case WeightFormat::kQ6K:
        return {256, 1280};
      case WeightFormat::kFloat32:
      case WeightFormat::kBFloat16:
      case WeightFormat::kFloat16:
        return {1, 20, 24, 333, 1032};
      default:
        return {32, 1120};
    }
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

TEST_P(CudaLinearTest, ReadsRowsByTheirIds) {
  const int64_t in = inputs().back();
  const Matrix matrix = random_matrix(GetParam(), 9, in, {});
  const Tensor ids = at::tensor({8, 0, 3, 3}, at::kInt);
  const Tensor out = at::empty({4, in});
  const cuda::EmbedRowsTask task = {matrix.stored.const_data_ptr(),
                                    matrix.format,
                                    ids.const_data_ptr<int32_t>(),
                                    out.mutable_data_ptr<float>(),
                                    2.5F,
                                    4,
                                    static_cast<int32_t>(in),
                                    9};
  ASSERT_EQ(specdec_cuda_embed_rows(&task, nullptr), 0);
  EXPECT_TRUE(at::equal(out, linear_rows(matrix.host, ids) * 2.5F));
}

INSTANTIATE_TEST_SUITE_P(
    Formats, CudaLinearTest,
    testing::Values(CudaFormat{WeightFormat::kFloat32, cuda::CudaWeights::kFloat32},
                    CudaFormat{WeightFormat::kBFloat16, cuda::CudaWeights::kBFloat16},
                    CudaFormat{WeightFormat::kFloat16, cuda::CudaWeights::kFloat16},
                    CudaFormat{WeightFormat::kInt8, cuda::CudaWeights::kQ80},
                    CudaFormat{WeightFormat::kQ40, cuda::CudaWeights::kQ40},
                    CudaFormat{WeightFormat::kQ41, cuda::CudaWeights::kQ41},
                    CudaFormat{WeightFormat::kQ50, cuda::CudaWeights::kQ50},
                    CudaFormat{WeightFormat::kQ51, cuda::CudaWeights::kQ51},
                    CudaFormat{WeightFormat::kQ4K, cuda::CudaWeights::kQ4K},
                    CudaFormat{WeightFormat::kQ5K, cuda::CudaWeights::kQ5K},
                    CudaFormat{WeightFormat::kQ6K, cuda::CudaWeights::kQ6K}),
    ParameterName());

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
