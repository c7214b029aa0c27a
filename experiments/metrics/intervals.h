#pragma once
#include <cstdint>
#include <optional>
#include <span>

namespace specdec {

/// Confidence of every interval that a report prints, unless it says another.
inline constexpr double kConfidence = 0.95;
/// Fewer questions have no interval: from so few no method reaches its nominal coverage unless the
/// data are normal.
inline constexpr int64_t kMinQuestions = 8;

/// Limits between which the figure of all questions of this kind lies in 95 % of experiments.
///
/// The unit of all intervals is the *question* with all its turns and repeats: these share a text,
/// so they are no independent observations, and counting them as such makes intervals too narrow
/// (Miller, 2024, "Adding error bars to evals", arXiv:2411.00640, on clustered standard errors).
struct Interval {
  double low = 0.0;
  double high = 0.0;
};

/// Smallest x with P(X <= x) >= probability, X of Student's t with `degrees` of freedom (> 0).
double student_quantile(double probability, double degrees);
/// Smallest x with P(X <= x) >= probability, X of the beta distribution with positive parameters.
double beta_quantile(double probability, double a, double b);

/// Mean of at least one value.
double mean_of(std::span<const double> values);
/// Student's t interval of the mean of independent values. None below kMinQuestions.
std::optional<Interval> mean_interval(std::span<const double> values);

/// exp of the mean of logarithms: the mean of ratios that does not depend on which side is the
/// denominator (Fleming and Wallace, 1986, "How not to lie with statistics: the correct way to
/// summarize benchmark results").
struct GeometricMean {
  double value = 0.0;
  double log_error = 0.0;  ///< standard error of the mean of logarithms; 0 for one value
  int64_t count = 0;
};
/// Geometric mean of positive values; none without values.
std::optional<GeometricMean> geometric_mean(std::span<const double> values);
/// exp of Student's t interval of the mean of logarithms. None below kMinQuestions values.
std::optional<Interval> geometric_interval(const GeometricMean& mean,
                                           double confidence = kConfidence);

/// What one question adds to a ratio of totals.
struct QuestionShare {
  double part = 0.0;   ///< to the numerator
  double whole = 0.0;  ///< to the denominator; a question with 0 is left out
};

/// Interval of a ratio of totals, sum of parts / sum of wholes: Student's t interval of its
/// logarithm, with the standard error of the jackknife that leaves out one question at a time
/// (Efron and Tibshirani, 1993, "An introduction to the bootstrap", chapter 11). None below
/// kMinQuestions questions, or where a ratio is zero.
std::optional<Interval> ratio_interval(std::span<const QuestionShare> questions);

/// Interval of a share, sum of parts / sum of wholes with part <= whole: Clopper and Pearson's with
/// the effective number of observations, which is smaller than the sum of wholes by as much as
/// those of one question resemble each other (Korn and Graubard, 1998, "Confidence intervals for
/// proportions with small expected number of positive counts estimated from survey data"). Where
/// the share is 0 or 1 nothing tells how much they do, and each question counts once. None below
/// kMinQuestions questions.
std::optional<Interval> share_interval(std::span<const QuestionShare> questions);

}  // namespace specdec
