// What holds for the products of every format of weights and of activations.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/kernels/linear_product.h"
#include "core/kernels/linear_rows.h"
#include "tests/support/stored_blocks.h"

namespace specdec {
namespace {

struct FormatCase {
  WeightFormat format;
  ActivationFormat activations;

  bool rounds() const { return activations == ActivationFormat::kInt8; }
  std::string name() const {
    return std::string(format_name(format)) + (rounds() ? "_int8_activations" : "");
  }
};

void PrintTo(const FormatCase& one, std::ostream* out) { *out << one.name(); }

std::vector<FormatCase> all_formats() {
  std::vector<FormatCase> all;
  for (const WeightFormat format : {WeightFormat::kFloat64, WeightFormat::kFloat32,
                                    WeightFormat::kBFloat16, WeightFormat::kFloat16}) {
    all.push_back({format, ActivationFormat::kFloat32});
  }
  for (const WeightFormat format : kIntegerBlockFormats) {
    all.push_back({format, ActivationFormat::kFloat32});
    all.push_back({format, ActivationFormat::kInt8});
  }
  for (const WeightFormat format : kFloatBlockFormats) {
    all.push_back({format, ActivationFormat::kFloat32});
  }
  return all;
}

class LinearFormatsTest : public testing::TestWithParam<FormatCase> {
 protected:
  ~LinearFormatsTest() override { at::set_num_threads(threads_); }

  static Linear random_linear(int64_t out, uint64_t seed) {
    at::manual_seed(seed);
    const bool plain = !is_in_blocks(GetParam().format);
    Linear linear = plain ? Linear(at::randn({out, kIn}), GetParam().format)
                          : random_stored_rows(GetParam().format, out, kIn, seed).packed();
    linear.set_activations(GetParam().activations);
    return linear;
  }
  static Tensor random_input(int64_t nodes, const Linear& linear) {
    at::manual_seed(5);
    return at::randn({nodes, kIn}, linear.compute_dtype());
  }

  static constexpr int64_t kIn = 768;  // more than are worked through at once
  int threads_ = at::get_num_threads();
};

TEST_P(LinearFormatsTest, RowsDoNotDependOnEachOther) {
  constexpr int64_t kMax = 131;
  const Linear linear = random_linear(70, 6);
  const Tensor input = random_input(kMax, linear);
  const Tensor all = linear_product(linear, input);
  for (int64_t nodes = 1; nodes <= kMax; nodes += nodes < 18 ? 1 : 38) {
    EXPECT_TRUE(
        at::equal(linear_product(linear, input.narrow(0, 0, nodes)), all.narrow(0, 0, nodes)))
        << nodes << " nodes";
    if (nodes > 18) {
      continue;
    }
    const int64_t last = kMax - nodes;
    EXPECT_TRUE(
        at::equal(linear_product(linear, input.narrow(0, last, nodes)), all.narrow(0, last, nodes)))
        << "last " << nodes << " nodes";
  }
}

TEST_P(LinearFormatsTest, NoRowsGiveNone) {
  const Linear linear = random_linear(70, 6);
  EXPECT_EQ(linear_product(linear, random_input(0, linear)).sizes(), (at::IntArrayRef{0, 70}));
}

TEST_P(LinearFormatsTest, TakesTheBytesThatAreSaid) {
  EXPECT_EQ(packed_bytes({.out = 70, .format = GetParam().format}, kIn),
            random_linear(70, 6).bytes());
}

TEST_P(LinearFormatsTest, ResultDoesNotDependOnThreads) {
  const Linear linear = random_linear(333, 8);
  const Tensor input = random_input(9, linear);
  at::set_num_threads(1);
  const Tensor serial = linear_product(linear, input);
  at::set_num_threads(2);
  EXPECT_TRUE(at::equal(serial, linear_product(linear, input)));
}

INSTANTIATE_TEST_SUITE_P(All, LinearFormatsTest, testing::ValuesIn(all_formats()),
                         [](const auto& info) { return info.param.name(); });

/// Three formats in parts that end within a panel.
class LinearPartsTest : public testing::Test {
 protected:
  LinearPartsTest() {
    at::manual_seed(4);
    for (int64_t row = 0; row < 40; ++row) {
      parts_.set_stored_row(row, q4k_.bytes[static_cast<size_t>(row)].data());
    }
    for (int64_t row = 0; row < 3; ++row) {
      parts_.set_stored_row(40 + row, q6k_.bytes[static_cast<size_t>(row)].data());
    }
    parts_.set_rows(43, plain_);
  }

  const StoredRows q4k_ = random_stored_rows(WeightFormat::kQ4K, 40, 512, 1);
  const StoredRows q6k_ = random_stored_rows(WeightFormat::kQ6K, 3, 512, 2);
  const Tensor plain_ = at::randn({20, 512});
  Linear parts_{{{40, WeightFormat::kQ4K}, {3, WeightFormat::kQ6K}, {20, WeightFormat::kFloat32}},
                512,
                Placement{}};
};

TEST_F(LinearPartsTest, AreMultipliedAsMatricesOfTheirOwn) {
  const Tensor bias = at::randn({63});
  for (const ActivationFormat activations : {ActivationFormat::kFloat32, ActivationFormat::kInt8}) {
    Linear q4k = q4k_.packed();
    Linear q6k = q6k_.packed();
    for (Linear* linear : {&q4k, &q6k, &parts_}) {
      linear->set_activations(activations);
    }
    for (const int64_t nodes : {1, 7, 30}) {
      const Tensor input = at::randn({nodes, 512});
      const Tensor wanted = at::cat({linear_product(q4k, input), linear_product(q6k, input),
                                     linear_product(Linear(plain_, WeightFormat::kFloat32), input)},
                                    1);
      EXPECT_TRUE(at::equal(linear_product(parts_, input), wanted)) << nodes;
      Linear biased = parts_;
      biased.set_bias(bias);
      EXPECT_TRUE(at::equal(linear_product(biased, input), wanted + bias)) << nodes;
    }
  }
}

TEST_F(LinearPartsTest, SomeRowsHaveTheBitsOfAll) {
  parts_.set_bias(at::randn({63}));
  const Tensor input = at::randn({9, 512});
  const Tensor all = linear_product(parts_, input);
  for (const RowRange& rows : {RowRange{0, 9}, RowRange{2, 3}, RowRange{4, 9}, RowRange{5, 5}}) {
    Tensor some = at::full({9, 63}, 7.0F);
    linear_product(parts_, input, rows, some);
    const Tensor wanted = at::full({9, 63}, 7.0F);
    wanted.narrow(0, rows.begin, rows.count()).copy_(all.narrow(0, rows.begin, rows.count()));
    EXPECT_TRUE(at::equal(some, wanted)) << rows.begin;
  }
}

TEST_F(LinearPartsTest, KeepTheirFormatsAndValues) {
  EXPECT_EQ(parts_.out(), 63);
  EXPECT_EQ(parts_.format(), WeightFormat::kQ4K);
  EXPECT_EQ(parts_.format(39), WeightFormat::kQ4K);
  EXPECT_EQ(parts_.format(42), WeightFormat::kQ6K);
  EXPECT_EQ(parts_.format(43), WeightFormat::kFloat32);
  EXPECT_TRUE(at::equal(parts_.unpack(), at::cat({q4k_.values(), q6k_.values(), plain_})));
}

TEST_F(LinearPartsTest, RowsOfTwoPartsAreRefused) {
  EXPECT_THROW(parts_.set_rows(42, plain_.narrow(0, 0, 2)), InternalError);
  EXPECT_THROW(linear_rows(parts_, at::zeros({1}, at::kInt)), InternalError);
}

}  // namespace
}  // namespace specdec
