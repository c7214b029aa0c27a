#include "core/kernels/block_product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/error.h"
#include "core/formats/gguf/gguf_blocks.h"
#include "core/formats/quantised/codebook_blocks.h"
#include "core/kernels/linear_product.h"
#include "tests/support/stored_blocks.h"

namespace specdec {
namespace {

Tensor random_floats(at::IntArrayRef sizes, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(sizes, at::kFloat);
}

Linear quantised(const Tensor& weight) {
  Linear linear(weight, WeightFormat::kInt8);
  linear.set_activations(ActivationFormat::kInt8);
  return linear;
}

/// The integers of a block of weights or inputs, and their scale.
struct Block {
  std::vector<int> values;
  float scale = 0.0F;
};

/// A block of inputs as its definition says.
Block input_block(const Tensor& values) {
  Block block;
  const float top = values.abs().max().item<float>();
  block.scale = top / 127.0F;
  const float inverse = top < 1e-30F ? 0.0F : 127.0F / top;
  for (int64_t k = 0; k < values.numel(); ++k) {
    // The product of two floats is exact in float64, so that it is rounded once.
    block.values.push_back(static_cast<int>(std::nearbyint(
        static_cast<double>(values[k].item<float>()) * static_cast<double>(inverse))));
  }
  return block;
}

/// A block of weights as packed: its scale is recovered from the unpacked numbers.
Block weight_block(const Tensor& original, const Tensor& unpacked) {
  Block block;
  block.scale = (original.abs().max() / 127.0F).to(at::kHalf).to(at::kFloat).item<float>();
  for (int64_t k = 0; k < unpacked.numel(); ++k) {
    block.values.push_back(block.scale == 0.0F ? 0
                                               : static_cast<int>(std::lround(
                                                     unpacked[k].item<float>() / block.scale)));
  }
  return block;
}

Tensor by_definition_in_blocks(const Tensor& input, const Tensor& weight) {
  const Tensor unpacked = Linear(weight, WeightFormat::kInt8).unpack();
  Tensor out = at::zeros({input.size(0), weight.size(0)});
  for (int64_t n = 0; n < input.size(0); ++n) {
    for (int64_t o = 0; o < weight.size(0); ++o) {
      float sum = 0.0F;
      for (int64_t k = 0; k < input.size(1); k += kBlockInputs) {
        const int64_t count = std::min(kBlockInputs, input.size(1) - k);
        const Block x = input_block(input[n].narrow(0, k, count));
        const Block w =
            weight_block(weight[o].narrow(0, k, count), unpacked[o].narrow(0, k, count));
        int dot = 0;
        for (size_t i = 0; i < x.values.size(); ++i) {
          dot += x.values[i] * w.values[i];
        }
        const float scales = w.scale * x.scale;
        sum = std::fma(static_cast<float>(dot), scales, sum);
      }
      out[n][o] = sum;
    }
  }
  return out;
}

TEST(BlockProductTest, HasTheBitsOfItsDefinition) {
  for (const auto& [in, out] : {std::pair{1, 1}, {31, 3}, {64, 33}, {100, 17}}) {
    const Tensor weight = random_floats({out, in}, 2);
    for (const int64_t nodes : {1, 3, 13}) {
      const Tensor input = random_floats({nodes, in}, 1);
      EXPECT_TRUE(at::equal(linear_product(quantised(weight), input),
                            by_definition_in_blocks(input, weight)))
          << nodes << " x " << in << " -> " << out;
    }
  }
}

TEST(BlockProductTest, SumsTheLargestIntegersExactly) {
  const Tensor ones = at::ones({1, 2048});
  const Linear linear = quantised(at::ones({32, 2048}));
  EXPECT_TRUE(
      at::equal(linear_product(linear, ones), by_definition_in_blocks(ones, at::ones({32, 2048}))));
  EXPECT_TRUE(at::equal(linear_product(linear, -ones), -linear_product(linear, ones)));
  EXPECT_NEAR(linear_product(linear, ones)[0][0].item<double>(), 2048.0, 1.0);
}

TEST(BlockProductTest, StaysNearTheExactProduct) {
  const Tensor input = random_floats({5, 640}, 9);
  const Tensor weight = random_floats({50, 640}, 10);
  const Tensor exact = at::mm(input.to(at::kDouble), weight.to(at::kDouble).t());
  const double error =
      (linear_product(quantised(weight), input) - exact).abs().max().item<double>();
  EXPECT_LT(error, 0.06 * std::sqrt(640.0));  // two roundings of about 0.4 % of a block's largest
  EXPECT_GT(error, 0.0);
}

TEST(BlockProductTest, TinyAndZeroInputsAreZero) {
  const Linear linear = quantised(random_floats({4, 40}, 11));
  EXPECT_TRUE(at::equal(linear_product(linear, at::zeros({2, 40})), at::zeros({2, 4})));
  EXPECT_TRUE(at::equal(linear_product(linear, at::full({2, 40}, 1e-38F)), at::zeros({2, 4})));
}

TEST(BlockProductTest, WhatIsNotANumberStaysSo) {
  const Linear linear = quantised(random_floats({3, 70}, 12));
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (const int64_t place : {0, 33, 69}) {
      Tensor input = random_floats({2, 70}, 13);
      input[1][place] = bad;
      const Tensor out = linear_product(linear, input);
      EXPECT_TRUE(out[0].isfinite().all().item<bool>());
      EXPECT_FALSE(out[1].isfinite().any().item<bool>()) << bad << " at " << place;
    }
  }
}

Tensor by_definition_of_stored(const Tensor& input, const StoredRows& stored) {
  Tensor out = at::zeros({input.size(0), stored.rows});
  const int64_t group = stored.scale_inputs;
  for (int64_t n = 0; n < input.size(0); ++n) {
    for (int64_t o = 0; o < stored.rows; ++o) {
      float sum = 0.0F;
      for (int64_t first = 0; first < stored.in; first += group) {
        const Block x = input_block(input[n].narrow(0, first / 32 * 32, 32));
        const auto codes = stored.codes[o].narrow(0, first, group);
        int dot = 0;
        int total = 0;
        for (int64_t k = 0; k < group; ++k) {
          const int value = x.values[static_cast<size_t>(first % 32 + k)];
          dot += value * static_cast<int>(codes[k].item<float>());
          total += value;
        }
        const float scales = stored.scales[o][first / group].item<float>() * x.scale;
        sum = std::fma(static_cast<float>(dot), scales, sum);
        if (stored.has_minima) {
          const float scaled_sum = static_cast<float>(total) * x.scale;
          sum = std::fma(stored.minima[o][first / group].item<float>(), scaled_sum, sum);
        }
      }
      out[n][o] = sum;
    }
  }
  return out;
}

class StoredBlocksTest : public testing::TestWithParam<WeightFormat> {
 protected:
  /// Whole blocks of at least `least` inputs.
  static int64_t inputs(int64_t least) {
    const int64_t block = std::max(block_values(stored_dtype(GetParam())), kBlockInputs);
    return (least + block - 1) / block * block;
  }
};

TEST_P(StoredBlocksTest, MeanTheirCodesTimesScalesPlusMinima) {
  const StoredRows stored = random_stored_rows(GetParam(), 37, inputs(96), 17);
  EXPECT_TRUE(at::equal(stored.packed().unpack(), stored.values()));
}

TEST_P(StoredBlocksTest, MeanWhatReadingTheFileGives) {
  const StoredRows stored = random_stored_rows(GetParam(), 37, inputs(300), 17);
  Tensor values = at::empty({37, stored.in});
  for (int64_t row = 0; row < 37; ++row) {
    dequantize(stored_dtype(GetParam()), stored.bytes[static_cast<size_t>(row)].data(), stored.in,
               values[row].mutable_data_ptr<float>());
  }
  EXPECT_TRUE(at::equal(stored.packed().unpack(), values));
}

TEST_P(StoredBlocksTest, TakeTheBytesOfTheFile) {
  const StoredRows stored = random_stored_rows(GetParam(), 64, inputs(96), 17);
  const auto file = static_cast<double>(64 * std::ssize(stored.bytes.front()));
  const auto bytes = static_cast<double>(stored.packed().bytes());
  EXPECT_GE(bytes, file);
  if (is_codebook_block(stored_dtype(GetParam()))) {
    const int64_t bits = 4 + 32 / stored.scale_inputs;
    EXPECT_EQ(bytes, static_cast<double>(64 * stored.in * bits / 8));
    return;
  }
  EXPECT_LE(bytes, block_values(stored_dtype(GetParam())) == 32 ? file : 1.05 * file);
}

TEST_P(StoredBlocksTest, ProductsHaveTheBitsOfTheirFloat32Values) {
  const int64_t in = inputs(544);
  const Linear linear = random_stored_rows(GetParam(), 37, in, 17).packed();
  const Linear widened(linear.unpack(), WeightFormat::kFloat32);
  for (const int64_t nodes : {1, 5, 14}) {
    const Tensor input = random_floats({nodes, in}, 18);
    EXPECT_TRUE(at::equal(linear_product(linear, input), linear_product(widened, input))) << nodes;
  }
}

class IntegerBlocksTest : public StoredBlocksTest {};

TEST_P(IntegerBlocksTest, QuantizedProductsHaveTheBitsOfTheirDefinition) {
  const StoredRows stored = random_stored_rows(GetParam(), 35, inputs(96), 17);
  Linear linear = stored.packed();
  linear.set_activations(ActivationFormat::kInt8);
  for (const int64_t nodes : {1, 7, 14}) {
    const Tensor input = random_floats({nodes, stored.in}, 19);
    EXPECT_TRUE(at::equal(linear_product(linear, input), by_definition_of_stored(input, stored)))
        << nodes;
  }
}

TEST_P(IntegerBlocksTest, SumsOfTheLargestProductsAreExact) {
  const StoredRows stored =
      random_stored_rows(GetParam(), 35, inputs(512), 17, StoredCodes::kExtreme);
  Linear linear = stored.packed();
  linear.set_activations(ActivationFormat::kInt8);
  const Tensor ones = at::ones({1, stored.in});  // all become 127
  const Tensor input = at::cat({ones, -ones, random_floats({3, stored.in}, 19).sign()});
  EXPECT_TRUE(at::equal(linear_product(linear, input), by_definition_of_stored(input, stored)));
}

TEST_P(IntegerBlocksTest, QuantizedProductsStayNearTheExactOnes) {
  const StoredRows stored = random_stored_rows(GetParam(), 50, inputs(640), 17);
  Linear linear = stored.packed();
  linear.set_activations(ActivationFormat::kInt8);
  const Tensor input = random_floats({5, stored.in}, 9);
  const Tensor exact = at::mm(input.to(at::kDouble), stored.values().to(at::kDouble).t());
  const Tensor largest = stored.values().norm(2, 1).to(at::kDouble);
  const Tensor errors = (linear_product(linear, input) - exact).abs() / largest;
  EXPECT_LT(errors.max().item<double>(), 0.04);  // inputs are rounded to some 1 % of theirs
  EXPECT_GT(errors.max().item<double>(), 0.0);
}

TEST_P(StoredBlocksTest, RowsOutsideAreRefused) {
  Linear linear = random_stored_rows(GetParam(), 2, inputs(32), 17).packed();
  EXPECT_THROW(linear.set_stored_row(2, nullptr), InternalError);
  EXPECT_THROW(Linear(2, 40, GetParam(), Placement{}).set_stored_row(0, nullptr), InternalError);
  EXPECT_THROW(Linear(2, inputs(32) + 8, GetParam(), Placement{}).set_stored_row(0, nullptr),
               InternalError);
}

std::string block_name(const testing::TestParamInfo<WeightFormat>& info) {
  return format_name(info.param);
}

INSTANTIATE_TEST_SUITE_P(Formats, StoredBlocksTest, testing::ValuesIn(kIntegerBlockFormats),
                         block_name);
INSTANTIATE_TEST_SUITE_P(FloatFormats, StoredBlocksTest, testing::ValuesIn(kFloatBlockFormats),
                         block_name);
INSTANTIATE_TEST_SUITE_P(Formats, IntegerBlocksTest, testing::ValuesIn(kIntegerBlockFormats),
                         block_name);

TEST(BlockProductTest, WeightsOfOtherBlocksThanIntegersKeepInputsAsTheyAre) {
  const StoredRows stored = random_stored_rows(WeightFormat::kFp8x32, 33, 64, 3);
  EXPECT_THROW(stored.packed().set_activations(ActivationFormat::kInt8), InternalError);
  const StoredRows integers = random_stored_rows(WeightFormat::kInt4x32, 2, 64, 4);
  Linear both({{33, WeightFormat::kFp8x32}, {2, WeightFormat::kInt4x32}}, 64, Placement{});
  for (int64_t row = 0; row < 35; ++row) {
    const auto& bytes = row < 33 ? stored.bytes[static_cast<size_t>(row)]
                                 : integers.bytes[static_cast<size_t>(row - 33)];
    both.set_stored_row(row, bytes.data());
  }
  both.set_activations(ActivationFormat::kInt8);
  const Tensor input = random_floats({3, 64}, 5);
  EXPECT_TRUE(at::equal(linear_product(both, input).narrow(1, 0, 33),
                        linear_product(stored.packed(), input)));
}

TEST(BlockProductTest, DamagedWeightsShowAndTinyOnesAreZero) {
  const Tensor input = random_floats({2, 64}, 20);
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Tensor weight = random_floats({3, 64}, 21);
    weight[1][40] = bad;
    const Tensor out = linear_product(quantised(weight), input);
    EXPECT_TRUE(out.select(1, 1).isnan().all().item<bool>());
    EXPECT_TRUE(out.select(1, 0).isfinite().all().item<bool>());
  }
  EXPECT_TRUE(
      at::equal(linear_product(quantised(at::full({2, 64}, 1e-39F)), input), at::zeros({2, 2})));
}

TEST(BlockProductTest, WeightsNotInBlocksAreRefused) {
  Linear linear(at::zeros({4, 8}), WeightFormat::kBFloat16);
  EXPECT_THROW(linear.set_activations(ActivationFormat::kInt8), InternalError);
  linear.set_activations(ActivationFormat::kFloat32);
}

}  // namespace
}  // namespace specdec
