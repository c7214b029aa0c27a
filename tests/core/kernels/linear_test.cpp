#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "core/error.h"
#include "core/kernels/linear_product.h"
#include "core/kernels/linear_rows.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

Tensor random(at::IntArrayRef sizes, at::ScalarType dtype, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(sizes, at::kDouble).to(dtype);
}

/// The product as it is defined: inputs in their order, each product and sum rounded once.
template <class T>
Tensor by_definition(const Tensor& input, const Tensor& weight) {
  const Tensor wide = weight.to(input.scalar_type());
  const auto x = input.accessor<T, 2>();
  const auto w = wide.accessor<T, 2>();
  Tensor out = at::empty({input.size(0), weight.size(0)}, input.options());
  auto sums = out.accessor<T, 2>();
  for (int64_t n = 0; n < input.size(0); ++n) {
    for (int64_t o = 0; o < weight.size(0); ++o) {
      T sum = 0;
      for (int64_t k = 0; k < input.size(1); ++k) {
        sum = std::fma(w[o][k], x[n][k], sum);
      }
      sums[n][o] = sum;
    }
  }
  return out;
}

Tensor by_definition(const Tensor& input, const Tensor& weight) {
  return input.scalar_type() == at::kDouble ? by_definition<double>(input, weight)
                                            : by_definition<float>(input, weight);
}

Linear packed(const Tensor& weight) { return {weight, weight_format(weight.scalar_type())}; }

/// A random weight in the format of a dtype.
Linear random_linear(at::IntArrayRef sizes, at::ScalarType dtype, uint64_t seed) {
  return {random(sizes, at::kDouble, seed), weight_format(dtype)};
}

class LinearTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  static at::ScalarType compute() { return GetParam() == at::kDouble ? at::kDouble : at::kFloat; }
};

TEST_P(LinearTest, HasTheBitsOfItsDefinitionForOddSizes) {
  for (const int64_t in : {1, 33, 130}) {
    for (const int64_t out : {1, 3, 17, 32, 67}) {
      const Linear linear = random_linear({out, in}, GetParam(), 2);
      for (const int64_t nodes : {1, 2, 5, 12, 13, 26}) {
        const Tensor input = random({nodes, in}, compute(), 1);
        EXPECT_TRUE(at::equal(linear_product(linear, input), by_definition(input, linear.unpack())))
            << nodes << " x " << in << " -> " << out;
      }
    }
  }
}

TEST_P(LinearTest, HasTheBitsOfItsDefinitionForManyInputs) {
  const Linear linear = random_linear({40, 1100}, GetParam(), 4);
  for (const int64_t nodes : {1, 7, 30}) {
    const Tensor input = random({nodes, 1100}, compute(), 3);
    EXPECT_TRUE(at::equal(linear_product(linear, input), by_definition(input, linear.unpack())))
        << nodes;
  }
}

TEST_P(LinearTest, PacksAndUnpacksExactly) {
  for (const int64_t out : {1, 31, 32, 33, 100}) {
    const Linear linear = random_linear({out, 19}, GetParam(), 7);
    const Tensor weight = linear.unpack();
    const Linear again(weight, linear.format());
    EXPECT_TRUE(at::equal(again.unpack(), weight)) << out;
    const Tensor ids = at::randint(0, out, {9}, at::kInt);
    EXPECT_TRUE(at::equal(linear_rows(linear, ids), weight.index_select(0, ids).to(compute())))
        << out;
  }
}

TEST_P(LinearTest, FillsInPieces) {
  const Tensor weight = random({75, 8}, at::kFloat, 8);
  Linear linear(75, 8, weight_format(GetParam()), Placement{});
  for (const auto& [first, count] : {std::pair{40, 35}, {0, 3}, {3, 30}, {33, 7}}) {
    linear.set_rows(first, weight.narrow(0, first, count));
  }
  EXPECT_TRUE(at::equal(linear.unpack(), Linear(weight, linear.format()).unpack()));
}

INSTANTIATE_TEST_SUITE_P(Formats, LinearTest,
                         testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                                         at::kChar),
                         ParameterName());

TEST(LinearInt8Test, RoundsBlocksAsQ80) {
  Tensor weight = random({37, 70}, at::kFloat, 15);
  weight[3].zero_();
  const Tensor unpacked = Linear(weight, WeightFormat::kInt8).unpack();
  for (int64_t first = 0; first < 70; first += 32) {
    const Tensor block = weight.narrow(1, first, std::min<int64_t>(32, 70 - first));
    const Tensor scale = block.abs().amax(1, true) / 127.0F;
    const Tensor inverse = at::where(scale == 0.0, 0.0F, scale.reciprocal());
    const Tensor wanted =
        at::trunc(block * inverse + at::sgn(block) * 0.5) * scale.to(at::kHalf).to(at::kFloat);
    EXPECT_TRUE(at::equal(unpacked.narrow(1, first, block.size(1)), wanted)) << first;
  }
}

TEST(LinearInt8Test, TakesLittleMore) {
  const Linear linear(64, 320, WeightFormat::kInt8, Placement{});
  EXPECT_EQ(linear.bytes(), 64 * 320 * 34 / 32);
}

TEST(LinearFormatTest, NarrowFormatsHaveTheBitsOfFloat32) {
  const Tensor input = random({7, 90}, at::kFloat, 9);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const Tensor weight = random({45, 90}, dtype, 10);
    EXPECT_TRUE(at::equal(linear_product(packed(weight), input),
                          linear_product(packed(weight.to(at::kFloat)), input)));
  }
}

TEST(LinearFormatTest, ConvertsToItsFormat) {
  const Tensor weight = random({5, 6}, at::kDouble, 11);
  const Linear linear(weight, WeightFormat::kBFloat16);
  EXPECT_TRUE(at::equal(linear.unpack(), weight.to(at::kBFloat16)));
  EXPECT_EQ(linear.compute_dtype(), at::kFloat);
}

TEST(LinearFormatTest, WidensEveryFiniteHalfAndBFloat16Exactly) {
  const Tensor bits = at::arange(-32768, 32768, at::kInt).to(at::kShort).view({1024, 64});
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    Tensor weight = bits.view(dtype).contiguous();
    weight = at::where(weight.isfinite(), weight, at::zeros({}, dtype));
    const Tensor widened = linear_product(packed(weight), at::eye(64, at::kFloat));
    EXPECT_TRUE(at::equal(widened, weight.to(at::kFloat).t())) << c10::toString(dtype);
  }
}

TEST(LinearFormatTest, KeepsInfinitiesAndNotANumber) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const Tensor weight = at::tensor({infinity, -infinity, std::nan("")}, at::kDouble).to(dtype);
    const Tensor out = linear_product(packed(weight.view({3, 1})), at::ones({1, 1}, at::kFloat));
    EXPECT_EQ(out[0][0].item<double>(), infinity);
    EXPECT_EQ(out[0][1].item<double>(), -infinity);
    EXPECT_TRUE(out.isnan()[0][2].item<bool>());
  }
}

TEST(LinearBiasTest, IsAddedToTheSum) {
  const Tensor weight = random({9, 4}, at::kFloat, 12);
  const Tensor bias = random({9}, at::kFloat, 13);
  const Tensor input = random({3, 4}, at::kFloat, 14);
  const Linear biased(weight, WeightFormat::kFloat32, bias);
  EXPECT_TRUE(
      at::equal(linear_product(biased, input), linear_product(packed(weight), input) + bias));
}

TEST(LinearChecksTest, RefusesOperandsThatDoNotFit) {
  const Linear linear = packed(at::zeros({4, 8}));
  const Tensor input = at::zeros({2, 8});
  Tensor out = at::zeros({2, 4});
  EXPECT_THROW(linear_product(linear, at::zeros({2, 9}), out), InternalError);
  EXPECT_THROW(linear_product(linear, at::zeros({3, 8}), out), InternalError);
  EXPECT_THROW(linear_product(linear, at::zeros({8, 2}).t(), out), InternalError);
  EXPECT_THROW(linear_product(linear, input.to(at::kDouble), out), InternalError);
  Tensor wrong = at::zeros({2, 4}, at::kDouble);
  EXPECT_THROW(linear_product(linear, input, wrong), InternalError);
  Tensor narrow = at::zeros({2, 3});
  EXPECT_THROW(linear_product(linear, input, narrow), InternalError);
  EXPECT_THROW(linear_product(Linear(), input, out), InternalError);
  EXPECT_THROW(linear_product(linear, input, {1, 3}, out), InternalError);
  EXPECT_THROW(linear_product(linear, input, {-1, 1}, out), InternalError);
  EXPECT_THROW(embed_rows(linear, at::zeros({3}, at::kInt), 1.0, out), InternalError);
}

TEST(LinearChecksTest, RefusesWeightsThatDoNotFit) {
  EXPECT_THROW(packed(at::zeros({0, 3})), InternalError);
  EXPECT_THROW(weight_format(at::kInt), InternalError);
  EXPECT_THROW(Linear(at::zeros({4, 8}), WeightFormat::kFloat32, at::zeros({5})), InternalError);
  Linear linear(4, 8, WeightFormat::kFloat32, Placement{});
  EXPECT_THROW(linear.set_rows(3, at::zeros({2, 8})), InternalError);
  EXPECT_THROW(linear.set_rows(0, at::zeros({2, 7})), InternalError);
}

TEST(LinearChecksTest, OtherDevicesAreAnError) {
  const Linear linear(at::empty({4, 8}, at::TensorOptions(at::kMeta)), WeightFormat::kFloat32);
  Tensor out = at::empty({2, 4});
  EXPECT_THROW(linear_product(linear, at::zeros({2, 8}), out), Error);
}

}  // namespace
}  // namespace specdec
