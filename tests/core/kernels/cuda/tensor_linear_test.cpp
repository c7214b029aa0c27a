#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/cuda/cuda_ops.h"
#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"
#include "core/kernels/cuda/unpack_kernel.h"
#include "core/kernels/linear_product.h"
#include "core/kernels/weight_fragments.h"
#include "tests/core/kernels/cuda/rounding_errors.h"
#include "tests/support/stored_blocks.h"

namespace specdec {
namespace {

/// A matrix as tensor cores take it.
class TensorMatrix {
 public:
  /// bfloat16 or float16.
  explicit TensorMatrix(const Tensor& weight)
      : TensorMatrix(weight, weight, weight_format(weight.scalar_type())) {}
  /// Rows as they are stored, and what they mean.
  TensorMatrix(const Tensor& stored, const Tensor& weight, WeightFormat host)
      : out_(weight.size(0)),
        in_(weight.size(1)),
        format_(cuda::kernel_format(host)),
        fragments_(pack_fragments(stored, host)) {
    EXPECT_EQ(fragments_.numel(),
              cuda::specdec_cuda_fragment_bytes(static_cast<int32_t>(out_),
                                                static_cast<int32_t>(in_), format_));
    EXPECT_EQ(fragments_.numel(), fragment_bytes(out_, in_, host));
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
                                         static_cast<int32_t>(out_),
                                         format_};
    EXPECT_EQ(specdec_cuda_tensor_linear(&task, nullptr), 0);
    EXPECT_TRUE(out.narrow(1, out_, 2).isnan().all().item<bool>());
    return out.narrow(1, 0, out_).contiguous();
  }

  /// Rows of it as embeddings are looked up.
  Tensor embed(const Tensor& ids, float factor) const {
    const Tensor out = at::full({ids.size(0), in_}, std::numeric_limits<float>::quiet_NaN());
    cuda::EmbedRowsTask task{};
    task.weight = fragments_.const_data_ptr();
    task.format = format_;
    task.ids = ids.const_data_ptr<int32_t>();
    task.out = out.mutable_data_ptr<float>();
    task.factor = factor;
    task.count = static_cast<int32_t>(ids.size(0));
    task.in = static_cast<int32_t>(in_);
    task.outputs = static_cast<int32_t>(out_);
    EXPECT_EQ(specdec_cuda_embed_fragments(&task, nullptr), 0);
    return out;
  }
  /// The whole of it as bfloat16 numbers; behind them nothing is written.
  Tensor unpack() const {
    const Tensor out = at::full({out_ + 1, in_}, -3.0, at::kBFloat16);
    const cuda::UnpackFragmentsTask task = {
        fragments_.const_data_ptr(),
        reinterpret_cast<uint16_t*>(out.mutable_data_ptr<at::BFloat16>()),
        static_cast<int32_t>(out_), static_cast<int32_t>(in_), format_};
    EXPECT_EQ(specdec_cuda_unpack_fragments(&task, nullptr), 0);
    EXPECT_TRUE(out[out_].eq(-3.0).all().item<bool>());
    return out.narrow(0, 0, out_);
  }
  const Tensor& fragments() const { return fragments_; }

 private:
  int64_t out_, in_;
  WeightFormat format_;
  Tensor fragments_;
};

/// A matrix on both sides.
struct TensorCase {
  TensorMatrix matrix;
  Linear host;
  Tensor weight;     ///< what it means
  Tensor stored;     ///< in the layout kRows
  Tensor magnitude;  ///< of a weight; with minima, of both numbers that it is the difference of
};

Tensor magnitude_of(const StoredRows& rows) { return rows.magnitudes().to(at::kDouble); }

/// A matrix in blocks, in the layout kRows.
Tensor stored_in_rows(const StoredRows& rows) {
  return rows.packed({at::kCPU, WeightLayout::kRows}).parts().front().packed;
}

class CudaTensorFormatsTest : public testing::TestWithParam<WeightFormat> {
 protected:
  void SetUp() override { at::manual_seed(12); }

  static TensorCase random_case(int64_t out, int64_t in, const Tensor& bias) {
    if (!is_in_blocks(GetParam())) {
      const Tensor weight = at::randn({out, in}).to(scalar_type(GetParam()));
      return {TensorMatrix(weight), Linear(weight, GetParam(), bias), weight, weight,
              weight.to(at::kDouble).abs()};
    }
    const StoredRows rows = random_stored_rows(GetParam(), out, in, 13);
    const Tensor stored = stored_in_rows(rows);
    Linear host = rows.packed();
    if (bias.defined()) {
      host.set_bias(bias);
    }
    return {TensorMatrix(stored, rows.values(), GetParam()), host, rows.values(), stored,
            magnitude_of(rows)};
  }

  /// Whether a product subtracts from a scaled code what a row's weight has subtracted before it is
  /// rounded.
  static bool rounds_otherwise() {
    constexpr WeightFormat kFormats[] = {WeightFormat::kInt4x128, WeightFormat::kInt4x32,
                                         WeightFormat::kAffine8x64, WeightFormat::kAffine4x32};
    return std::find(std::begin(kFormats), std::end(kFormats), GetParam()) != std::end(kFormats);
  }

  static std::vector<int64_t> inputs() {
    if (!is_in_blocks(GetParam())) {
      return {1, 16, 63, 200, 1100};
    }
    const int64_t block = std::max(kBlockInputs, block_values(stored_dtype(GetParam())));
    return block == 32 ? std::vector<int64_t>{32, 64, 1120}
                       : std::vector<int64_t>{block, 5 * block};
  }
};

TEST_P(CudaTensorFormatsTest, EqualsTheProductInFloat64) {
  cuda::RoundingErrors errors;
  for (const int64_t in : inputs()) {
    for (const int64_t out : {1, 16, 35}) {
      const Tensor bias = out == 35 ? at::randn({out}) : Tensor();
      const TensorCase c = random_case(out, in, bias);
      for (const int64_t rows : {0, 1, 8, 9, 33, 65}) {
        cuda::emulation::set_seed(static_cast<uint64_t>(rows));
        const Tensor input = at::randn({rows, in}) * at::randn({rows, 1}).exp();
        const Tensor result = c.matrix.apply(input, bias);
        const Tensor weight = c.weight.to(at::kDouble);
        Tensor exact = at::matmul(input.to(at::kDouble), weight.t());
        // What float32 would round: some units in the last place of the terms' magnitudes.
        Tensor bound = at::matmul(input.abs().to(at::kDouble), c.magnitude.t());
        if (bias.defined()) {
          exact += bias;
          bound += bias.abs();
        }
        EXPECT_TRUE(errors.are_small(result, exact, bound)) << rows << " x " << in << " x " << out;
        const Tensor difference = (result - linear_product(c.host, input)).abs();
        EXPECT_TRUE((difference <= bound * 2 * cuda::tensor_tolerance()).all().item<bool>());
      }
    }
  }
}

TEST_P(CudaTensorFormatsTest, FragmentsHoldEachRow) {
  for (const int64_t in : inputs()) {
    const TensorCase c = random_case(35, in, {});
    const Tensor ids = at::tensor({34, 0, 7, 8, 16, 15, 8}, at::kInt);
    const Tensor wanted = c.weight.to(at::kFloat).index_select(0, ids);
    EXPECT_TRUE(at::equal(c.matrix.embed(ids, 0.5F), wanted * 0.5)) << in;
    EXPECT_TRUE(at::equal(c.matrix.unpack(), c.weight.to(at::kBFloat16))) << in;
    const Tensor rows = unpack_fragments(c.matrix.fragments(), GetParam(), in, ids.to(at::kLong));
    EXPECT_TRUE(at::equal(rows, c.stored.index_select(0, ids))) << in;
  }
}

TEST_P(CudaTensorFormatsTest, ARowAmongOthersHasItsOwnBits) {
  const TensorMatrix matrix = random_case(20, 768, {}).matrix;
  const Tensor input = at::randn({70, 768});
  input[3].fill_(std::numeric_limits<float>::infinity());
  input[40].fill_(std::numeric_limits<float>::quiet_NaN());
  const Tensor all = matrix.apply(input);
  for (const int64_t row : {0, 2, 69}) {
    for (const int64_t rows : {1, 8, 20, 64}) {
      const int64_t first = std::min(row, 70 - rows);
      cuda::emulation::set_seed(static_cast<uint64_t>(row + rows));
      const Tensor some = matrix.apply(input.narrow(0, first, rows).clone());
      EXPECT_TRUE(at::equal(some[row - first], all[row])) << row << " of " << rows;
    }
  }
}

/// An input of 1 among zeros picks out a weight, whose bits are those of its row in a table.
TEST_P(CudaTensorFormatsTest, SingleWeightsAreThoseOfRows) {
  const int64_t in = is_in_blocks(GetParam()) ? inputs().front() : 80;
  const TensorCase c = random_case(35, in, {});
  const Tensor weight = c.weight.to(at::kFloat);
  const Tensor picked = c.matrix.apply(at::eye(in)).t();
  if (rounds_otherwise()) {  // a scaled code and what is added are two terms of a sum
    EXPECT_TRUE(at::allclose(picked, weight, 0.0, 1e-6 * c.magnitude.max().item<double>()));
  } else {
    EXPECT_TRUE(at::equal(picked, weight));
  }
}

/// What a matrix gives without clusters.
Tensor without_clusters(const TensorMatrix& matrix, const Tensor& input, const Tensor& bias = {}) {
  cuda::emulation::set_clusters(false);
  const Tensor result = matrix.apply(input, bias);
  cuda::emulation::set_clusters(true);
  return result;
}

/// From 512 outputs on several rows are multiplied by clusters of blocks, a row by blocks alone: so
/// many inputs that each warp reads weights beyond those that it began with.
TEST_P(CudaTensorFormatsTest, ClustersHaveTheBitsOfBlocksAlone) {
  constexpr int64_t kInputs = int64_t{64} * 8 * 6;
  const TensorCase c = random_case(530, kInputs, {});
  const Tensor input = at::randn({9, kInputs});
  const Tensor row = input.narrow(0, 8, 1).clone();
  const Tensor alone = c.matrix.apply(row);
  const Tensor exact = at::matmul(row.to(at::kDouble), c.weight.to(at::kDouble).t());
  const Tensor bound = at::matmul(row.abs().to(at::kDouble), c.magnitude.t());
  cuda::RoundingErrors errors;
  EXPECT_TRUE(errors.are_small(alone, exact, bound));
  const Tensor two = c.matrix.apply(input.narrow(0, 7, 2).clone());
  const Tensor nine = c.matrix.apply(input);
  EXPECT_TRUE(at::equal(two.narrow(0, 1, 1), alone));
  EXPECT_TRUE(at::equal(nine.narrow(0, 8, 1), alone));
  EXPECT_TRUE(at::equal(nine, without_clusters(c.matrix, input)));
}

/// Pairs of tiles, several tiles of rows, more rows than a block takes, and a bias.
TEST(CudaTensorLinearTest, ClustersOfEachShapeHaveTheBitsOfBlocksAlone) {
  at::manual_seed(16);
  for (const auto& [outputs, rows] : {std::pair(8209, 8), {8209, 33}, {530, 65}}) {
    const TensorMatrix matrix(at::randn({outputs, 640}).to(at::kBFloat16));
    const Tensor bias = at::randn({outputs});
    const Tensor input = at::randn({rows, 640});
    const Tensor result = matrix.apply(input, bias);
    EXPECT_TRUE(at::equal(result, without_clusters(matrix, input, bias))) << outputs << " " << rows;
    const int64_t last = rows - 1;
    EXPECT_TRUE(
        at::equal(result.narrow(0, last, 1), matrix.apply(input.narrow(0, last, 1).clone(), bias)));
  }
}

/// From 8,192 outputs on a warp has two tiles of them.
TEST_P(CudaTensorFormatsTest, PairsOfTilesHaveTheBitsOfEach) {
  const TensorCase c = random_case(8209, inputs().front(), {});
  const auto last = [&](const Tensor& rows) { return rows.narrow(0, 8192, 17).clone(); };
  const TensorMatrix alone(last(c.stored), last(c.weight), GetParam());
  for (const int64_t rows : {1, 8}) {
    const Tensor input = at::randn({rows, inputs().front()});
    EXPECT_TRUE(at::equal(c.matrix.apply(input).narrow(1, 8192, 17), alone.apply(input))) << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, CudaTensorFormatsTest,
    testing::Values(WeightFormat::kBFloat16, WeightFormat::kFloat16, WeightFormat::kInt8,
                    WeightFormat::kQ40, WeightFormat::kQ41, WeightFormat::kQ50, WeightFormat::kQ51,
                    WeightFormat::kQ2K, WeightFormat::kQ3K, WeightFormat::kQ4K, WeightFormat::kQ5K,
                    WeightFormat::kQ6K, WeightFormat::kFp8x128, WeightFormat::kFp8x32,
                    WeightFormat::kInt4x128, WeightFormat::kInt4x32, WeightFormat::kIq4Xs,
                    WeightFormat::kFp4x16, WeightFormat::kNf4x32, WeightFormat::kAffine8x64,
                    WeightFormat::kAffine4x32),
    [](const auto& info) { return std::string(format_name(info.param)); });

/// They differ in their tables and in how many inputs share a scale.
TEST(CudaTensorLinearTest, EachFormatWithACodebookHasItsTable) {
  for (auto format = WeightFormat::kIq1S; has_codebook(format);
       format = static_cast<WeightFormat>(static_cast<int>(format) + 1)) {
    const StoredRows rows = random_stored_rows(format, 9, 256, 15);
    const TensorMatrix matrix(stored_in_rows(rows), rows.values(), format);
    const Tensor ids = at::tensor({8, 0, 3}, at::kInt);
    EXPECT_TRUE(at::equal(matrix.embed(ids, 2.5F), rows.values().index_select(0, ids) * 2.5F))
        << format_name(format);
  }
}

TEST(CudaTensorLinearTest, ManyOutputsAreComputedInPairsOfTiles) {
  at::manual_seed(14);
  const Tensor weight = at::randn({8209, 70}).to(at::kBFloat16);
  const TensorMatrix all(weight);
  const TensorMatrix last(weight.narrow(0, 8208, 1).clone());
  cuda::RoundingErrors errors;
  for (const int64_t rows : {1, 19}) {
    const Tensor input = at::randn({rows, 70});
    const Tensor result = all.apply(input);
    const Tensor exact = at::matmul(input.to(at::kDouble), weight.to(at::kDouble).t());
    const Tensor terms = at::matmul(input.abs().to(at::kDouble), weight.abs().to(at::kDouble).t());
    EXPECT_TRUE(errors.are_small(result, exact, terms));
    EXPECT_TRUE(at::equal(result.narrow(1, 8208, 1), last.apply(input)));
  }
}

/// Numbers that float16 has and bfloat16 has not: eleven bits, and subnormal ones.
TEST(CudaTensorLinearTest, KeepsEveryBitOfFloat16) {
  const Tensor weight =
      at::tensor({2047.0F, -65504.0F, 0x1p-24F, 0x1.FFCp-15F, 1.0F / 3}).view({5, 1}).to(at::kHalf);
  const Tensor result = TensorMatrix(weight).apply(at::ones({1, 1}));
  EXPECT_TRUE(at::equal(result, weight.to(at::kFloat).t()));
  const Tensor infinite = at::full({1, 1}, std::numeric_limits<float>::infinity(), at::kHalf);
  EXPECT_FALSE(TensorMatrix(infinite).apply(at::ones({1, 1})).isfinite().any().item<bool>());
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
  cuda::TensorLinearTask task{};
  task.fragments = bytes;
  task.workspace = bytes + 4;
  task.rows = 1;
  task.in = 16;
  task.outputs = 16;
  EXPECT_EQ(specdec_cuda_tensor_linear(&task, nullptr), cuda::kInvalidValue);
  task.fragments = bytes + 8;
  task.workspace = bytes;
  EXPECT_EQ(specdec_cuda_tensor_linear(&task, nullptr), cuda::kInvalidValue);
}

TEST(CudaTensorLinearTest, RefusesFloat32) {
  EXPECT_EQ(cuda::specdec_cuda_fragment_bytes(16, 256, WeightFormat::kFloat32), 0);
  cuda::TensorLinearTask task{};
  task.rows = 1;
  task.in = 256;
  task.outputs = 16;
  task.format = WeightFormat::kFloat32;
  EXPECT_EQ(specdec_cuda_tensor_linear(&task, nullptr), cuda::kInvalidValue);
  cuda::EmbedRowsTask embed{};
  embed.count = 1;
  embed.in = 256;
  embed.format = WeightFormat::kFloat32;
  EXPECT_EQ(specdec_cuda_embed_fragments(&embed, nullptr), cuda::kInvalidValue);
}

/// Weights are rounded to bfloat16, inputs to 16 bits; a part in float32 has its own bits.
TEST(CudaLibraryProductTest, IsThatOfRoundedNumbers) {
  Linear matrix(
      {{16, WeightFormat::kFloat32}, {20, WeightFormat::kFloat16}, {12, WeightFormat::kInt8}}, 64,
      {at::kCPU, WeightLayout::kRows});
  for (const auto& [first, rows] : {std::pair(0, 16), {16, 20}, {36, 12}}) {
    matrix.set_rows(first, at::randn({rows, 64}));
  }
  matrix.set_bias(at::randn({48}));
  const Tensor weight = matrix.unpack().to(at::kBFloat16).to(at::kDouble);
  matrix.arrange();
  const Tensor input = at::randn({70, 64});
  Tensor out = at::empty({70, 48});
  const auto ops = cuda_ops(at::kCPU);
  ASSERT_TRUE(ops->has_library());
  ops->library_linear(matrix, input, out);
  const Tensor own = ops->linear(matrix, input);
  EXPECT_TRUE(at::equal(out.narrow(1, 0, 16), own.narrow(1, 0, 16)));
  const Tensor exact =
      at::addmm(matrix.bias().to(at::kDouble), input.to(at::kDouble), weight.t()).narrow(1, 16, 32);
  const Tensor bound = at::matmul(input.abs().to(at::kDouble), weight.abs().t()).narrow(1, 16, 32);
  const Tensor result = out.narrow(1, 16, 32);
  EXPECT_TRUE(((result - exact).abs() <= bound * 0x1p-16).all().item<bool>());
  EXPECT_FALSE(at::equal(result, own.narrow(1, 16, 32)));
  EXPECT_THROW((void)ops->record([&] { ops->library_linear(matrix, input, out); }), InternalError);
  EXPECT_FALSE(cpu_ops()->has_library());
  EXPECT_THROW(cpu_ops()->library_linear(matrix, input, out), InternalError);
}

}  // namespace
}  // namespace specdec
