#pragma once
#include <cstdint>

namespace specdec {

/// Upper tail of the chi-square distribution: P(X > statistic).
double chi_square_tail(double statistic, int64_t degrees);

/// Degrees of freedom of a chi-square test, and how often it may blame what is right.
struct TestLevel {
  int64_t degrees = 1;
  double false_positives = 0.01;
};

/// The statistic above which a test blames.
double critical_value(const TestLevel& level);
/// The noncentrality at which a test finds a difference with probability `power`.
double noncentrality(const TestLevel& level, double power);

/// Samples at which a test finds, with probability `power`, any difference of this total variation
/// between the cells' probabilities. A difference d moves the noncentrality by at least 4 d^2 a
/// sample (Cauchy-Schwarz), with equality for two cells of probability 1/2.
int64_t samples_to_see(double total_variation, const TestLevel& level, double power);
/// The total variation that so many samples find.
double visible_total_variation(double samples, const TestLevel& level, double power);

}  // namespace specdec
