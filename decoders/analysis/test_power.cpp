#include "decoders/analysis/test_power.h"

#include <cmath>
#include <functional>
#include <limits>

#include "core/error.h"

namespace specdec {
namespace {

/// The series of the regularised lower incomplete gamma function P(a, x), without its factor.
double gamma_series(double a, double x, int terms) {
  double term = 1.0 / a;
  double sum = term;
  for (int n = 1; n < terms; ++n) {
    term *= x / (a + n);
    sum += term;
  }
  return sum;
}

/// Lentz's continued fraction of Q(a, x), without its factor.
double gamma_fraction(double a, double x, int terms) {
  constexpr double kTiny = std::numeric_limits<double>::min();
  double b = x + 1.0 - a;
  double c = 1.0 / kTiny;
  double d = 1.0 / b;
  double fraction = d;
  for (int n = 1; n < terms; ++n) {
    const double step = -n * (n - a);
    b += 2.0;
    d = 1.0 / (step * d + b);
    c = b + step / c;
    fraction *= d * c;
  }
  return fraction;
}

/// P(X > statistic) of the noncentral distribution: a Poisson mixture of central ones.
double noncentral_tail(double statistic, int64_t degrees, double noncentrality) {
  const double mean = noncentrality / 2.0;
  const auto last = static_cast<int64_t>(mean + 12.0 * std::sqrt(mean) + 30.0);
  double tail = 0.0;
  for (int64_t j = 0; j <= last; ++j) {
    const auto count = static_cast<double>(j);
    const double weight = mean == 0.0
                              ? (j == 0 ? 1.0 : 0.0)
                              : std::exp(count * std::log(mean) - mean - std::lgamma(count + 1.0));
    tail += weight * chi_square_tail(statistic, degrees + 2 * j);
  }
  return tail;
}

/// Where an increasing function passes zero, from 0 on.
double root_of(const std::function<double(double)>& increasing) {
  double low = 0.0;
  double high = 1.0;
  while (increasing(high) < 0.0) {
    low = high;
    high *= 2.0;
  }
  constexpr int kHalvings = 50;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = 0.5 * (low + high);
    (increasing(middle) < 0.0 ? low : high) = middle;
  }
  return high;
}

}  // namespace

double chi_square_tail(double statistic, int64_t degrees) {
  const double a = static_cast<double>(degrees) / 2.0;
  const double x = statistic / 2.0;
  if (x <= 0.0) {
    return 1.0;
  }
  if (std::isinf(x)) {
    return 0.0;
  }
  // The regularised upper incomplete gamma function Q(a, x): by the series of its complement below
  // the mean, by the continued fraction above.
  const double scale = std::exp(a * std::log(x) - x - std::lgamma(a));
  constexpr int kTerms = 1000;
  return x < a + 1.0 ? 1.0 - scale * gamma_series(a, x, kTerms)
                     : scale * gamma_fraction(a, x, kTerms);
}

double critical_value(const TestLevel& level) {
  SPECDEC_CHECK(level.degrees >= 1 && level.false_positives > 0.0 && level.false_positives < 1.0,
                "a test of {} degrees at level {}", level.degrees, level.false_positives);
  return root_of(
      [&](double x) { return level.false_positives - chi_square_tail(x, level.degrees); });
}

double noncentrality(const TestLevel& level, double power) {
  const double critical = critical_value(level);
  return root_of(
      [&](double lambda) { return noncentral_tail(critical, level.degrees, lambda) - power; });
}

int64_t samples_to_see(double total_variation, const TestLevel& level, double power) {
  const double samples = noncentrality(level, power) / (4.0 * total_variation * total_variation);
  return static_cast<int64_t>(std::ceil(samples));
}

double visible_total_variation(double samples, const TestLevel& level, double power) {
  return std::sqrt(noncentrality(level, power) / (4.0 * samples));
}

}  // namespace specdec
