#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#define SPECDEC_SIMD_BODY "tests/core/kernels/vector_math_simd.h"
#include "core/kernels/simd/for_each_simd.h"

namespace specdec {
namespace {

constexpr size_t kWidest = 16;

template <class T>
std::vector<T> grid(double low, double high, size_t count) {
  std::vector<T> points(count);
  for (size_t i = 0; i < count; ++i) {
    points[i] = static_cast<T>(low + (high - low) * static_cast<double>(i) /
                                         static_cast<double>(count - 1));
  }
  return points;
}

template <class T>
std::vector<T> exp_of(const std::vector<T>& points) {
  std::vector<T> result(points.size());
  const auto count = static_cast<int64_t>(points.size());
  SPECDEC_SIMD_CALL(exp_all, points.data(), result.data(), count);
  return result;
}

template <class T>
std::vector<T> tanh_of(const std::vector<T>& points) {
  std::vector<T> result(points.size());
  const auto count = static_cast<int64_t>(points.size());
  SPECDEC_SIMD_CALL(tanh_all, points.data(), result.data(), count);
  return result;
}

/// Largest relative difference from long double arithmetic.
template <class T>
double worst(const std::vector<T>& points, const std::vector<T>& found,
             long double (*exact)(long double)) {
  double largest = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const long double right = exact(points[i]);
    const long double error = right == 0 ? std::abs(static_cast<long double>(found[i]))
                                         : std::abs((found[i] - right) / right);
    largest = std::max(largest, static_cast<double>(error));
  }
  return largest;
}

template <class T>
class VectorMathTest : public testing::Test {
 protected:
  static constexpr bool kSingle = sizeof(T) == 4;
  static constexpr double kTolerance = kSingle ? 2e-7 : 5e-16;
};
using Numbers = testing::Types<float, double>;
TYPED_TEST_SUITE(VectorMathTest, Numbers);

TYPED_TEST(VectorMathTest, ExpIsAccurate) {
  for (const double range : {1e-6, 0.5, 5.0, this->kSingle ? 86.9 : 707.9}) {
    const auto points = grid<TypeParam>(-range, range, 4096);
    EXPECT_LT(worst<TypeParam>(points, exp_of(points), std::exp), this->kTolerance) << range;
  }
}

TYPED_TEST(VectorMathTest, TanhIsAccurateAroundZeroToo) {
  for (const double range : {1e-7, 1e-3, 0.2, 0.7, 3.0, 30.0}) {
    const auto points = grid<TypeParam>(-range, range, 4096);
    EXPECT_LT(worst<TypeParam>(points, tanh_of(points), std::tanh), 2 * this->kTolerance) << range;
  }
}

TYPED_TEST(VectorMathTest, LimitsAndNotANumber) {
  const auto infinity = std::numeric_limits<TypeParam>::infinity();
  std::vector<TypeParam> points(kWidest);
  points[0] = infinity;
  points[1] = -infinity;
  points[2] = std::numeric_limits<TypeParam>::quiet_NaN();
  points[3] = -1e6;
  points[4] = 1e6;
  const auto exps = exp_of(points);
  EXPECT_EQ(exps[0], infinity);
  EXPECT_EQ(exps[1], 0);
  EXPECT_TRUE(std::isnan(exps[2]));
  EXPECT_EQ(exps[3], 0);
  EXPECT_EQ(exps[4], infinity);
  EXPECT_EQ(exps[5], 1);
  const auto tanhs = tanh_of(points);
  EXPECT_EQ(tanhs[0], 1);
  EXPECT_EQ(tanhs[1], -1);
  EXPECT_TRUE(std::isnan(tanhs[2]));
  EXPECT_EQ(tanhs[5], 0);
}

}  // namespace
}  // namespace specdec
