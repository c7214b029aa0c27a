#include "core/kernels/linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <mutex>
#include <ostream>
#include <set>
#include <thread>

#include "core/error.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

Tensor random(at::IntArrayRef sizes, at::ScalarType dtype, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(sizes, at::kDouble).to(dtype);
}

/// Largest difference from float64 arithmetic on the same (rounded) operands.
double error_of(const Tensor& input, const Tensor& weight, const Tensor& out) {
  const Tensor exact = at::matmul(input.to(at::kDouble), weight.to(at::kDouble).t());
  return (out.to(at::kDouble) - exact).abs().max().item<double>();
}

Tensor product(const Tensor& input, const Tensor& weight) {
  Tensor out = at::full({input.size(0), weight.size(0)}, -7.0, input.options());
  linear(input, weight, out);
  return out;
}

struct LinearCase {
  at::ScalarType input;
  at::ScalarType weight;
  double tolerance;
};

void PrintTo(const LinearCase& one, std::ostream* out) {
  *out << one.input << " by " << one.weight;
}

class LinearTest : public testing::TestWithParam<LinearCase> {};

TEST_P(LinearTest, EqualsDoubleArithmeticForOddSizes) {
  const LinearCase& dtypes = GetParam();
  for (const int64_t in : {1, 33, 48, 130}) {
    for (const int64_t out : {1, 3, 17}) {
      for (const int64_t nodes : {1, 5, 6, 13}) {
        const Tensor input = random({nodes, in}, dtypes.input, 1);
        const Tensor weight = random({out, in}, dtypes.weight, 2);
        EXPECT_LT(error_of(input, weight, product(input, weight)), dtypes.tolerance)
            << nodes << " x " << in << " -> " << out;
      }
    }
  }
}

TEST_P(LinearTest, ManyNodes) {
  const LinearCase& dtypes = GetParam();
  const Tensor input = random({131, 96}, dtypes.input, 3);
  const Tensor weight = random({200, 96}, dtypes.weight, 4);
  EXPECT_LT(error_of(input, weight, product(input, weight)), dtypes.tolerance);
}

TEST_P(LinearTest, RowsDoNotDependOnEachOther) {
  const LinearCase& dtypes = GetParam();
  constexpr int64_t kMost = 2 * kRowInvariantRows + 3;
  const Tensor input = random({kMost, 201}, dtypes.input, 5);
  const Tensor weight = random({70, 201}, dtypes.weight, 6);
  const Tensor all = product(input, weight);
  for (int64_t nodes = 1; nodes <= kMost; nodes += nodes < 14 ? 1 : 5) {
    EXPECT_TRUE(at::equal(product(input.narrow(0, 0, nodes), weight), all.narrow(0, 0, nodes)))
        << nodes << " nodes";
    const int64_t last = kMost - nodes;
    EXPECT_TRUE(
        at::equal(product(input.narrow(0, last, nodes), weight), all.narrow(0, last, nodes)))
        << "last " << nodes << " nodes";
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, LinearTest,
                         testing::Values(LinearCase{at::kFloat, at::kFloat, 5e-5},
                                         LinearCase{at::kFloat, at::kBFloat16, 5e-5},
                                         LinearCase{at::kFloat, at::kHalf, 5e-5},
                                         LinearCase{at::kDouble, at::kDouble, 1e-12},
                                         LinearCase{at::kDouble, at::kFloat, 1e-12},
                                         LinearCase{at::kDouble, at::kBFloat16, 1e-12},
                                         LinearCase{at::kDouble, at::kHalf, 1e-12}),
                         ParameterName());

TEST(LinearHalfTest, WidensEveryFiniteHalfAndBFloat16Exactly) {
  const Tensor bits = at::arange(-32768, 32768, at::kInt).to(at::kShort).view({1024, 64});
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    Tensor weight = bits.view(dtype).contiguous();
    weight = at::where(weight.isfinite(), weight, at::zeros({}, dtype));
    const Tensor widened = product(at::eye(64, at::kFloat), weight);
    EXPECT_TRUE(at::equal(widened, weight.to(at::kFloat).t())) << c10::toString(dtype);
  }
}

TEST(LinearHalfTest, KeepsInfinitiesAndNotANumber) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const Tensor weight = at::tensor({infinity, -infinity, std::nan("")}, at::kDouble).to(dtype);
    const Tensor out = product(at::ones({1, 1}, at::kFloat), weight.view({3, 1}));
    EXPECT_EQ(out[0][0].item<double>(), infinity);
    EXPECT_EQ(out[0][1].item<double>(), -infinity);
    EXPECT_TRUE(out.isnan()[0][2].item<bool>());
  }
}

TEST(LinearThreadsTest, ParallelForUsesTwoThreads) {
  if (at::get_num_threads() < 2) {
    GTEST_SKIP() << "one thread only";
  }
  std::mutex mutex;
  std::set<std::thread::id> seen;
  at::parallel_for(0, 2, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(seen.size(), 2U) << "LibTorch's parallel_for is serial in code built without OpenMP";
}

TEST(LinearThreadsTest, ResultDoesNotDependOnThreads) {
  const int threads = at::get_num_threads();
  const Tensor input = random({9, 512}, at::kFloat, 7);
  const Tensor weight = random({333, 512}, at::kFloat, 8);
  at::set_num_threads(1);
  const Tensor serial = product(input, weight);
  at::set_num_threads(2);
  const Tensor parallel = product(input, weight);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(serial, parallel));
}

TEST(LinearChecksTest, RefusesOperandsThatDoNotFit) {
  const Tensor input = at::zeros({2, 8});
  Tensor out = at::zeros({2, 4});
  EXPECT_THROW(linear(input, at::zeros({4, 9}), out), InternalError);
  EXPECT_THROW(linear(input, at::zeros({5, 8}), out), InternalError);
  EXPECT_THROW(linear(input, at::zeros({8, 4}).t(), out), InternalError);
  EXPECT_THROW(linear(input, at::zeros({4, 8}, at::kDouble), out), InternalError);
  EXPECT_THROW(linear(input, at::zeros({4, 8}, at::kInt), out), InternalError);
  EXPECT_THROW(linear(input.to(at::kHalf), at::zeros({4, 8}), out), InternalError);
  Tensor wrong = at::zeros({2, 4}, at::kDouble);
  EXPECT_THROW(linear(input, at::zeros({4, 8}), wrong), InternalError);
}

TEST(LinearChecksTest, OtherDevicesAreAnError) {
  const Tensor input = at::empty({2, 8}, at::TensorOptions(at::kMeta));
  Tensor out = at::empty({2, 4}, at::TensorOptions(at::kMeta));
  EXPECT_THROW(linear(input, input, out), Error);
}

}  // namespace
}  // namespace specdec
