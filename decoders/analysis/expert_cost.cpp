#include "decoders/analysis/expert_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include "core/error.h"

namespace specdec {
namespace {

/// Numbers for the terms of the cost: 1, rows and distinct experts.
using Terms = std::array<double, 3>;
using Fitted = std::array<bool, 3>;

/// What must be left of a term that the others explain, as a share of its square.
constexpr double kLeastIndependence = 1e-6;

Terms terms_of(const ExpertSample& sample) {
  return {1.0, static_cast<double>(sample.rows), sample.distinct};
}

using Matrix = std::array<std::array<double, 3>, 3>;

/// x of matrix * x = wanted, for a symmetric matrix with ones on its diagonal, by Cholesky's
/// factors. None where a row is nearly a sum of others.
std::optional<Terms> solve(Matrix matrix, Terms wanted) {
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      for (size_t k = 0; k < j; ++k) {
        matrix[i][j] -= matrix[i][k] * matrix[j][k];
      }
      if (i != j) {
        matrix[i][j] /= matrix[j][j];
      } else if (matrix[i][i] < kLeastIndependence) {
        return std::nullopt;
      } else {
        matrix[i][i] = std::sqrt(matrix[i][i]);
      }
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    for (size_t k = 0; k < i; ++k) {
      wanted[i] -= matrix[i][k] * wanted[k];
    }
    wanted[i] /= matrix[i][i];
  }
  for (size_t i = 3; i-- > 0;) {
    for (size_t k = i + 1; k < 3; ++k) {
      wanted[i] -= matrix[k][i] * wanted[k];
    }
    wanted[i] /= matrix[i][i];
  }
  return wanted;
}

/// Least squares of relative errors over some of the terms; the others' coefficients are 0. None
/// where the terms depend on each other.
std::optional<Terms> fit_terms(std::span<const ExpertSample> samples, const Fitted& fitted) {
  Matrix matrix = {};
  Terms wanted = {};
  for (const ExpertSample& sample : samples) {
    Terms row = terms_of(sample);
    for (size_t i = 0; i < 3; ++i) {
      row[i] = fitted[i] ? row[i] / sample.seconds : 0.0;
    }
    for (size_t i = 0; i < 3; ++i) {
      wanted[i] += row[i];
      for (size_t j = 0; j < 3; ++j) {
        matrix[i][j] += row[i] * row[j];
      }
    }
  }
  Terms scale = {};
  for (size_t i = 0; i < 3; ++i) {
    scale[i] = matrix[i][i] > 0.0 ? std::sqrt(matrix[i][i]) : 1.0;
  }
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      matrix[i][j] /= scale[i] * scale[j];
    }
    matrix[i][i] = 1.0;
    wanted[i] /= scale[i];
  }
  auto found = solve(matrix, wanted);
  for (size_t i = 0; found && i < 3; ++i) {
    (*found)[i] /= scale[i];
  }
  return found;
}

double relative_error(std::span<const ExpertSample> samples, const ExpertCost& cost) {
  double sum = 0.0;
  for (const ExpertSample& sample : samples) {
    const double predicted = cost.seconds(static_cast<double>(sample.rows), sample.distinct);
    sum += std::pow(predicted / sample.seconds - 1.0, 2.0);
  }
  return std::sqrt(sum / static_cast<double>(samples.size()));
}

/// Tokens of the text.
int64_t tokens_of(const RecordedRoutes& routes) {
  return routes.layers.empty() ? 0 : std::ssize(routes.layers.front()) / routes.chosen;
}

/// Adds the distinct experts of 1, 2, ... tokens from `first` on, a layer's share of the mean.
void add_counts(const RecordedRoutes& routes, int64_t first, std::vector<double>& sums) {
  const double share = 1.0 / static_cast<double>(routes.layers.size());
  for (const std::vector<int32_t>& layer : routes.layers) {
    std::set<int32_t> woken;
    for (size_t n = 0; n < sums.size(); ++n) {
      const auto token = layer.begin() + (first + static_cast<int64_t>(n)) * routes.chosen;
      woken.insert(token, token + routes.chosen);
      sums[n] += share * static_cast<double>(woken.size());
    }
  }
}

}  // namespace

double independent_experts(int64_t count, int64_t chosen, double rows) {
  const auto all = static_cast<double>(count);
  return all * (1.0 - std::pow(1.0 - static_cast<double>(chosen) / all, rows));
}

std::optional<ExpertCost> fit_expert_cost(std::span<const ExpertSample> samples) {
  if (samples.size() < 3 || !fit_terms(samples, {true, true, true})) {
    return std::nullopt;
  }
  std::optional<ExpertCost> best;
  for (unsigned terms = 1; terms < 8; ++terms) {  // the best of those without negative ones
    const auto found =
        fit_terms(samples, {(terms & 1U) != 0, (terms & 2U) != 0, (terms & 4U) != 0});
    if (!found || std::any_of(found->begin(), found->end(), [](double x) { return x < 0.0; })) {
      continue;
    }
    ExpertCost cost{.fixed = (*found)[0], .per_row = (*found)[1], .per_expert = (*found)[2]};
    cost.error = relative_error(samples, cost);
    if (!best || cost.error < best->error) {
      best = cost;
    }
  }
  return best;
}

std::vector<double> experts_of_prefixes(const RecordedRoutes& routes, int64_t most) {
  std::vector<double> counts(static_cast<size_t>(std::min(most, tokens_of(routes))));
  add_counts(routes, 0, counts);
  return counts;
}

std::vector<double> experts_of_windows(const RecordedRoutes& routes, int64_t most) {
  const int64_t tokens = tokens_of(routes);
  std::vector<double> sums(static_cast<size_t>(std::min(most, tokens)));
  for (int64_t first = 0; first < tokens; ++first) {
    std::vector<double> here(static_cast<size_t>(std::min(std::ssize(sums), tokens - first)));
    add_counts(routes, first, here);
    std::transform(here.begin(), here.end(), sums.begin(), sums.begin(), std::plus<>());
  }
  for (size_t n = 0; n < sums.size(); ++n) {
    sums[n] /= static_cast<double>(tokens - static_cast<int64_t>(n));
  }
  return sums;
}

double ExpertCounts::at(int64_t tokens) const {
  SPECDEC_CHECK(tokens >= 1 && count >= 1, "{} tokens, {} experts", tokens, count);
  if (recorded.empty()) {
    return independent_experts(count, chosen, static_cast<double>(tokens));
  }
  if (tokens <= std::ssize(recorded)) {
    return recorded[static_cast<size_t>(tokens - 1)];
  }
  const auto further = static_cast<double>(tokens - std::ssize(recorded));
  const double asleep = static_cast<double>(count) - recorded.back();
  return recorded.back() +
         asleep / static_cast<double>(count) * independent_experts(count, chosen, further);
}

CostCurve with_experts(const CostCurve& curve, const ExpertCost& cost, const ExpertCounts& measured,
                       const ExpertCounts& expected) {
  constexpr double kLeastShare = 0.1;
  CostCurve result = curve;
  for (CostPoint& point : result.points) {
    const double more =
        cost.per_expert * (expected.at(point.new_tokens) - measured.at(point.new_tokens));
    const double share = std::max(kLeastShare, 1.0 + more / point.seconds);
    point.seconds *= share;
    point.low *= share;
    point.high *= share;
  }
  return result;
}

}  // namespace specdec
