#include "core/kernels/block_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "core/error.h"
#include "core/kernels/linear.h"

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
      EXPECT_TRUE(at::equal(quantised(weight).apply(input), by_definition_in_blocks(input, weight)))
          << nodes << " x " << in << " -> " << out;
    }
  }
}

TEST(BlockProductTest, SumsTheLargestIntegersExactly) {
  const Tensor ones = at::ones({1, 2048});
  const Linear linear = quantised(at::ones({32, 2048}));
  EXPECT_TRUE(at::equal(linear.apply(ones), by_definition_in_blocks(ones, at::ones({32, 2048}))));
  EXPECT_TRUE(at::equal(linear.apply(-ones), -linear.apply(ones)));
  EXPECT_NEAR(linear.apply(ones)[0][0].item<double>(), 2048.0, 1.0);
}

TEST(BlockProductTest, RowsDoNotDependOnEachOther) {
  constexpr int64_t kMost = 131;
  const Tensor input = random_floats({kMost, 1100}, 5);
  const Linear linear = quantised(random_floats({70, 1100}, 6));
  const Tensor all = linear.apply(input);
  for (int64_t nodes = 1; nodes <= kMost; nodes += nodes < 26 ? 1 : 5) {
    EXPECT_TRUE(at::equal(linear.apply(input.narrow(0, 0, nodes)), all.narrow(0, 0, nodes)))
        << nodes << " nodes";
    const int64_t last = kMost - nodes;
    EXPECT_TRUE(at::equal(linear.apply(input.narrow(0, last, nodes)), all.narrow(0, last, nodes)))
        << "last " << nodes << " nodes";
  }
}

TEST(BlockProductTest, ResultDoesNotDependOnThreads) {
  const int threads = at::get_num_threads();
  const Tensor input = random_floats({9, 512}, 7);
  const Linear linear = quantised(random_floats({333, 512}, 8));
  at::set_num_threads(1);
  const Tensor serial = linear.apply(input);
  at::set_num_threads(2);
  const Tensor parallel = linear.apply(input);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(serial, parallel));
}

TEST(BlockProductTest, StaysNearTheExactProduct) {
  const Tensor input = random_floats({5, 640}, 9);
  const Tensor weight = random_floats({50, 640}, 10);
  const Tensor exact = at::mm(input.to(at::kDouble), weight.to(at::kDouble).t());
  const double error = (quantised(weight).apply(input) - exact).abs().max().item<double>();
  EXPECT_LT(error, 0.06 * std::sqrt(640.0));  // two roundings of about 0.4 % of a block's largest
  EXPECT_GT(error, 0.0);
}

TEST(BlockProductTest, TinyAndZeroInputsAreZero) {
  const Linear linear = quantised(random_floats({4, 40}, 11));
  EXPECT_TRUE(at::equal(linear.apply(at::zeros({2, 40})), at::zeros({2, 4})));
  EXPECT_TRUE(at::equal(linear.apply(at::full({2, 40}, 1e-38F)), at::zeros({2, 4})));
}

TEST(BlockProductTest, WhatIsNotANumberStaysSo) {
  const Linear linear = quantised(random_floats({3, 70}, 12));
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (const int64_t place : {0, 33, 69}) {
      Tensor input = random_floats({2, 70}, 13);
      input[1][place] = bad;
      const Tensor out = linear.apply(input);
      EXPECT_TRUE(out[0].isfinite().all().item<bool>());
      EXPECT_FALSE(out[1].isfinite().any().item<bool>()) << bad << " at " << place;
    }
  }
}

/// Random rows of a GGUF file, and what they mean.
struct StoredRows {
  WeightFormat format;
  int64_t rows, in;
  std::vector<std::vector<std::byte>> bytes = {};
  Tensor codes = {}, scales = {}, minima = {};  ///< [rows, in], and [rows, blocks] twice
};

StoredRows random_stored(WeightFormat format, int64_t rows, int64_t in) {
  std::mt19937 random(17);
  StoredRows stored{format, rows, in};
  stored.codes = at::zeros({rows, in});
  stored.scales = at::zeros({rows, in / 32});
  stored.minima = at::zeros({rows, in / 32});
  const auto half = [&](float value, std::vector<std::byte>& to) {
    const uint16_t bits = c10::Half(value).x;
    to.push_back(static_cast<std::byte>(bits & 0xFFU));
    to.push_back(static_cast<std::byte>(bits >> 8U));
    return static_cast<float>(c10::Half(value));
  };
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<std::byte>& bytes = stored.bytes.emplace_back();
    for (int64_t b = 0; b < in / 32; ++b) {
      stored.scales[row][b] = half(static_cast<float>(random() % 1000) / 7919.0F, bytes);
      if (format == WeightFormat::kQ41) {
        stored.minima[row][b] = half(static_cast<float>(random() % 1000) / -977.0F, bytes);
      }
      for (int64_t k = 0; k < (format == WeightFormat::kInt8 ? 32 : 16); ++k) {
        const auto byte = static_cast<uint8_t>(random());
        bytes.push_back(static_cast<std::byte>(byte));
        if (format == WeightFormat::kInt8) {
          stored.codes[row][b * 32 + k] = static_cast<int8_t>(byte);
        } else {
          const int offset = format == WeightFormat::kQ40 ? 8 : 0;
          stored.codes[row][b * 32 + k] = (byte & 0xF) - offset;
          stored.codes[row][b * 32 + k + 16] = (byte >> 4) - offset;
        }
      }
    }
  }
  return stored;
}

Linear packed_rows(const StoredRows& stored) {
  Linear linear(stored.rows, stored.in, stored.format, at::kCPU);
  for (int64_t row = 0; row < stored.rows; ++row) {
    linear.set_stored_row(row, stored.bytes[static_cast<size_t>(row)].data());
  }
  return linear;
}

Tensor by_definition_of_stored(const Tensor& input, const StoredRows& stored) {
  Tensor out = at::zeros({input.size(0), stored.rows});
  for (int64_t n = 0; n < input.size(0); ++n) {
    for (int64_t o = 0; o < stored.rows; ++o) {
      float sum = 0.0F;
      for (int64_t b = 0; b < stored.in / 32; ++b) {
        const Block x = input_block(input[n].narrow(0, b * 32, 32));
        int dot = 0;
        int total = 0;
        for (int64_t k = 0; k < 32; ++k) {
          const int value = x.values[static_cast<size_t>(k)];
          dot += value * static_cast<int>(stored.codes[o][b * 32 + k].item<float>());
          total += value;
        }
        const float scales = stored.scales[o][b].item<float>() * x.scale;
        sum = std::fma(static_cast<float>(dot), scales, sum);
        if (stored.format == WeightFormat::kQ41) {
          const float scaled_sum = static_cast<float>(total) * x.scale;
          sum = std::fma(stored.minima[o][b].item<float>(), scaled_sum, sum);
        }
      }
      out[n][o] = sum;
    }
  }
  return out;
}

class StoredBlocksTest : public testing::TestWithParam<WeightFormat> {};

TEST_P(StoredBlocksTest, MeanTheirCodesTimesScalesPlusMinima) {
  const StoredRows stored = random_stored(GetParam(), 37, 96);
  const Tensor scales = stored.scales.repeat_interleave(32, 1);
  const Tensor minima = stored.minima.repeat_interleave(32, 1);
  EXPECT_TRUE(at::equal(packed_rows(stored).unpack(), stored.codes * scales + minima));
}

TEST_P(StoredBlocksTest, TakeTheBytesOfTheFile) {
  const StoredRows stored = random_stored(GetParam(), 64, 96);
  EXPECT_EQ(packed_rows(stored).bytes(), 64 * std::ssize(stored.bytes.front()));
}

TEST_P(StoredBlocksTest, ProductsHaveTheBitsOfTheirFloat32Values) {
  const Linear linear = packed_rows(random_stored(GetParam(), 37, 544));
  const Linear widened(linear.unpack(), WeightFormat::kFloat32);
  for (const int64_t nodes : {1, 5, 14}) {
    const Tensor input = random_floats({nodes, 544}, 18);
    EXPECT_TRUE(at::equal(linear.apply(input), widened.apply(input))) << nodes;
  }
}

TEST_P(StoredBlocksTest, QuantizedProductsHaveTheBitsOfTheirDefinition) {
  const StoredRows stored = random_stored(GetParam(), 35, 96);
  Linear linear = packed_rows(stored);
  linear.set_activations(ActivationFormat::kInt8);
  for (const int64_t nodes : {1, 7, 14}) {
    const Tensor input = random_floats({nodes, 96}, 19);
    EXPECT_TRUE(at::equal(linear.apply(input), by_definition_of_stored(input, stored))) << nodes;
  }
}

TEST_P(StoredBlocksTest, RowsOutsideAreRefused) {
  Linear linear = packed_rows(random_stored(GetParam(), 2, 32));
  EXPECT_THROW(linear.set_stored_row(2, nullptr), InternalError);
  EXPECT_THROW(Linear(2, 40, GetParam(), at::kCPU).set_stored_row(0, nullptr), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Formats, StoredBlocksTest,
                         testing::Values(WeightFormat::kInt8, WeightFormat::kQ40,
                                         WeightFormat::kQ41),
                         [](const auto& info) { return std::string(format_name(info.param)); });

TEST(BlockProductTest, DamagedWeightsShowAndTinyOnesAreZero) {
  const Tensor input = random_floats({2, 64}, 20);
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Tensor weight = random_floats({3, 64}, 21);
    weight[1][40] = bad;
    const Tensor out = quantised(weight).apply(input);
    EXPECT_TRUE(out.select(1, 1).isnan().all().item<bool>());
    EXPECT_TRUE(out.select(1, 0).isfinite().all().item<bool>());
  }
  EXPECT_TRUE(at::equal(quantised(at::full({2, 64}, 1e-39F)).apply(input), at::zeros({2, 2})));
}

TEST(BlockProductTest, WeightsNotInBlocksAreRefused) {
  Linear linear(at::zeros({4, 8}), WeightFormat::kBFloat16);
  EXPECT_THROW(linear.set_activations(ActivationFormat::kInt8), InternalError);
  linear.set_activations(ActivationFormat::kFloat32);
}

}  // namespace
}  // namespace specdec
