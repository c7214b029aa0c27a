#include "experiments/metrics/intervals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"

namespace specdec {
namespace {

constexpr double kTail = (1.0 - kConfidence) / 2.0;

/// Continued fraction of the incomplete beta function by Lentz's method (Press et al., "Numerical
/// recipes", 6.4); converges fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double x, double a, double b) {
  constexpr double kTiny = 1e-300;
  const auto away_from_zero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1.0;
  double d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
  double fraction = d;
  for (int i = 1; i < 100000; ++i) {
    const double m = i;
    const double even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
    double change = 1.0;
    for (const double term : {even, odd}) {
      d = 1.0 / away_from_zero(1.0 + term * d);
      c = away_from_zero(1.0 + term / c);
      change = c * d;
      fraction *= change;
    }
    if (std::abs(change - 1.0) < 1e-15) {
      break;
    }
  }
  return fraction;
}

/// P(X <= x) of the beta distribution.
double beta_probability(double x, double a, double b) {
  if (x <= 0.0 || x >= 1.0) {
    return x <= 0.0 ? 0.0 : 1.0;
  }
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1.0) / (a + b + 2.0) ? front * beta_fraction(x, a, b) / a
                                       : 1.0 - front * beta_fraction(1.0 - x, b, a) / b;
}

double squared_deviations(std::span<const double> values) {
  const double mean = mean_of(values);
  double sum = 0.0;
  for (const double value : values) {
    sum += (value - mean) * (value - mean);
  }
  return sum;
}

/// Standard error of the mean of at least two independent values.
double standard_error(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squared_deviations(values) / (count - 1.0) / count);
}

struct ShareTotals {
  double part = 0.0, whole = 0.0;
  int64_t questions = 0;
};

ShareTotals total_shares(std::span<const QuestionShare> questions) {
  ShareTotals totals;
  for (const QuestionShare& question : questions) {
    totals.part += question.part;
    totals.whole += question.whole;
    totals.questions += question.whole > 0.0 ? 1 : 0;
  }
  return totals;
}

/// Observations that, were they independent, would tell as much of the share.
double effective_observations(std::span<const QuestionShare> questions, const ShareTotals& totals) {
  const auto count = static_cast<double>(totals.questions);
  const double share = totals.part / totals.whole;
  if (share <= 0.0 || share >= 1.0) {
    return count;
  }
  double squares = 0.0;
  for (const QuestionShare& question : questions) {
    const double residual = question.part - share * question.whole;
    squares += residual * residual;
  }
  const double variance = count / (count - 1.0) * squares / (totals.whole * totals.whole);
  const double effective = share * (1.0 - share) / variance;  // infinite for equal shares
  const double narrower = totals.whole > 1.0 ? student_quantile(1.0 - kTail, totals.whole - 1.0) /
                                                   student_quantile(1.0 - kTail, count - 1.0)
                                             : 1.0;
  return std::min(effective, totals.whole) * std::min(1.0, narrower * narrower);
}

}  // namespace

double beta_quantile(double probability, double a, double b) {
  SPECDEC_CHECK(a > 0.0 && b > 0.0 && probability >= 0.0 && probability <= 1.0,
                "no quantile {} of a beta distribution with {} and {}", probability, a, b);
  double low = 0.0;
  double high = 1.0;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = low + (high - low) / 2.0;
    if (middle == low || middle == high) {
      break;
    }
    (beta_probability(middle, a, b) < probability ? low : high) = middle;
  }
  return high;
}

double student_quantile(double probability, double degrees) {
  SPECDEC_CHECK(degrees > 0.0 && probability > 0.0 && probability < 1.0,
                "no quantile {} of Student's t with {} degrees of freedom", probability, degrees);
  if (probability < 0.5) {
    return -student_quantile(1.0 - probability, degrees);
  }
  // t^2 / (degrees + t^2) has the beta distribution with 1/2 and degrees / 2.
  const double x = beta_quantile(2.0 * probability - 1.0, 0.5, degrees / 2.0);
  return x >= 1.0 ? std::numeric_limits<double>::infinity() : std::sqrt(degrees * x / (1.0 - x));
}

double mean_of(std::span<const double> values) {
  double sum = 0.0;
  for (const double value : values) {
    sum += value;
  }
  return sum / static_cast<double>(values.size());
}

std::optional<Interval> mean_interval(std::span<const double> values) {
  if (std::ssize(values) < kMinQuestions) {
    return std::nullopt;
  }
  const auto degrees = static_cast<double>(values.size() - 1);
  const double width = standard_error(values) * student_quantile(1.0 - kTail, degrees);
  return Interval{mean_of(values) - width, mean_of(values) + width};
}

std::optional<GeometricMean> geometric_mean(std::span<const double> values) {
  if (values.empty()) {
    return std::nullopt;
  }
  std::vector<double> logs;
  for (const double value : values) {
    SPECDEC_CHECK(value > 0.0, "a geometric mean of {}", value);
    logs.push_back(std::log(value));
  }
  return GeometricMean{.value = std::exp(mean_of(logs)),
                       .log_error = logs.size() < 2 ? 0.0 : standard_error(logs),
                       .count = std::ssize(logs)};
}

std::optional<Interval> geometric_interval(const GeometricMean& mean, double confidence) {
  if (mean.count < kMinQuestions) {
    return std::nullopt;
  }
  const double factor =
      std::exp(mean.log_error *
               student_quantile((1.0 + confidence) / 2.0, static_cast<double>(mean.count - 1)));
  return Interval{mean.value / factor, mean.value * factor};
}

std::optional<Interval> ratio_interval(std::span<const QuestionShare> questions) {
  const ShareTotals totals = total_shares(questions);
  if (totals.questions < kMinQuestions) {
    return std::nullopt;
  }
  std::vector<double> without;  // logarithms of the ratio with one question left out
  for (const QuestionShare& question : questions) {
    if (question.whole > 0.0) {
      without.push_back(std::log((totals.part - question.part) / (totals.whole - question.whole)));
    }
  }
  const auto count = static_cast<double>(without.size());
  const double error = std::sqrt((count - 1.0) / count * squared_deviations(without));
  if (!std::isfinite(error)) {
    return std::nullopt;
  }
  const double ratio = totals.part / totals.whole;
  const double factor = std::exp(error * student_quantile(1.0 - kTail, count - 1.0));
  return Interval{ratio / factor, ratio * factor};
}

std::optional<Interval> share_interval(std::span<const QuestionShare> questions) {
  const ShareTotals totals = total_shares(questions);
  if (totals.questions < kMinQuestions) {
    return std::nullopt;
  }
  const double observations = effective_observations(questions, totals);
  const double hits = totals.part / totals.whole * observations;
  const double misses = observations - hits;
  return Interval{hits > 0.0 ? beta_quantile(kTail, hits, misses + 1.0) : 0.0,
                  misses > 0.0 ? beta_quantile(1.0 - kTail, hits + 1.0, misses) : 1.0};
}

}  // namespace specdec
