#include "core/sampling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/kernels/probs.h"

namespace specdec {
namespace {

/// CTRL's penalty. It is computed from the raw logit, so a token that was seen twice pays once.
template <class Logit>
void penalise(std::span<const Logit> logits, TokenSpan history, double penalty,
              std::span<double> scores) {
  for (const Token token : history) {
    SPECDEC_CHECK(token >= 0 && token < static_cast<int64_t>(logits.size()),
                  "token {} of the history is outside the vocabulary of {}", token, logits.size());
    const auto logit = static_cast<double>(logits[static_cast<size_t>(token)]);
    scores[static_cast<size_t>(token)] = logit > 0.0 ? logit / penalty : logit * penalty;
  }
}

/// Logits as float64 with the penalty and the filter applied; returns the best.
template <class Logit>
double score(std::span<const Logit> logits, TokenSpan history, const SamplingParams& params,
             const ScoreFilter& filter, std::span<double> scores) {
  SPECDEC_CHECK(!logits.empty() && logits.size() == scores.size(),
                "{} logits for a distribution of {}", logits.size(), scores.size());
  std::copy(logits.begin(), logits.end(), scores.begin());
  if (params.repetition_penalty != 1.0) {
    penalise(logits, history, params.repetition_penalty, scores);
  }
  if (filter) {
    filter(scores);
  }
  const double best = largest_of(scores);
  if (!std::isfinite(best)) {
    throw Error(
        "the model's logits hold NaN, +inf or nothing but -inf: its weights or its inputs are "
        "damaged, or everything was forbidden");
  }
  return best;
}

/// "More likely", ties to the lower id.
struct MoreLikely {
  std::span<const double> distribution;
  bool operator()(Token a, Token b) const {
    const double mass_a = distribution[static_cast<size_t>(a)];
    const double mass_b = distribution[static_cast<size_t>(b)];
    return mass_a != mass_b ? mass_a > mass_b : a < b;
  }
};

double mass_of(std::span<const Token> ids, std::span<const double> distribution) {
  return std::accumulate(ids.begin(), ids.end(), 0.0, [&](double sum, Token id) {
    return sum + distribution[static_cast<size_t>(id)];
  });
}

/// Cuts `ids` to the smallest set of the most likely ones whose mass reaches `share` of all. Sorts
/// no more than it needs: a few hundred ids of a peaked distribution on a vocabulary of 262144.
void keep_nucleus(std::vector<Token>& ids, std::span<const double> distribution, double share) {
  const MoreLikely more_likely{distribution};
  const double wanted = share * mass_of(ids, distribution);
  double reached = 0.0;
  size_t sorted = 0;
  size_t chunk = 128;
  while (sorted < ids.size()) {
    const size_t next = std::min(sorted + chunk, ids.size());
    const auto begin = ids.begin() + static_cast<int64_t>(sorted);
    const auto end = ids.begin() + static_cast<int64_t>(next);
    if (next < ids.size()) {
      std::nth_element(begin, end, ids.end(), more_likely);
    }
    std::sort(begin, end, more_likely);
    for (size_t i = sorted; i < next; ++i) {
      reached += distribution[static_cast<size_t>(ids[i])];
      if (reached >= wanted) {
        ids.resize(i + 1);
        return;
      }
    }
    sorted = next;
    chunk *= 4;
  }
}

/// Sets the mass of all tokens that are not in `ids` to zero.
void keep_only(const std::vector<Token>& ids, std::span<double> distribution) {
  std::vector<double> masses(ids.size());
  std::transform(ids.begin(), ids.end(), masses.begin(),
                 [&](Token id) { return distribution[static_cast<size_t>(id)]; });
  std::fill(distribution.begin(), distribution.end(), 0.0);
  for (size_t i = 0; i < ids.size(); ++i) {
    distribution[static_cast<size_t>(ids[i])] = masses[i];
  }
}

bool limits_count(const SamplingParams& params, size_t vocab) {
  return params.top_k > 0 && params.top_k < static_cast<int64_t>(vocab);
}

/// Top-k and top-p on unnormalised masses.
void keep_most_likely(const SamplingParams& params, std::span<double> distribution) {
  std::vector<Token> ids(distribution.size());
  std::iota(ids.begin(), ids.end(), 0);
  if (limits_count(params, distribution.size())) {
    std::nth_element(ids.begin(), ids.begin() + params.top_k, ids.end(), MoreLikely{distribution});
    ids.resize(static_cast<size_t>(params.top_k));
  }
  if (params.top_p < 1.0) {
    keep_nucleus(ids, distribution, params.top_p);
  }
  keep_only(ids, distribution);
}

/// Top-k, top-p and min-p on unnormalised masses, of which the best token's is 1; returns the sum
/// of what is left of `sum`.
double truncate_distribution(const SamplingParams& params, double sum,
                             std::span<double> distribution) {
  const bool by_rank = limits_count(params, distribution.size()) || params.top_p < 1.0;
  if (by_rank) {
    keep_most_likely(params, distribution);
  }
  if (params.min_p > 0.0) {
    std::replace_if(
        distribution.begin(), distribution.end(), [&](double mass) { return mass < params.min_p; },
        0.0);
  }
  return by_rank || params.min_p > 0.0 ? sum_of(distribution).sum : sum;
}

/// The inverse of the temperature. That of the smallest ones is infinite, and 0 * infinity is not a
/// number.
double inverse(double temperature) {
  return std::min(1.0 / temperature, std::numeric_limits<double>::max());
}

template <class Logit>
void distribution_of(std::span<const Logit> logits, TokenSpan history, const SamplingParams& params,
                     const ScoreFilter& filter, std::span<double> distribution) {
  const double best = score(logits, history, params, filter, distribution);
  if (params.greedy()) {
    const auto token = std::find(distribution.begin(), distribution.end(), best);
    std::fill(distribution.begin(), token, 0.0);
    *token = 1.0;
    std::fill(token + 1, distribution.end(), 0.0);
    return;
  }
  const double sum = soften(distribution, best, inverse(params.temperature));
  divide(distribution, truncate_distribution(params, sum, distribution));
}

/// Calls `use` with the row's values as a span of float or double.
template <class Use>
auto with_values(const at::Tensor& logits, Use use) {
  SPECDEC_CHECK(logits.dim() == 1, "one row of logits has one dimension, not {}", logits.dim());
  const at::Tensor row = logits.cpu().contiguous();
  const auto size = static_cast<size_t>(row.numel());
  if (row.scalar_type() == at::kDouble) {
    return use(std::span<const double>(row.const_data_ptr<double>(), size));
  }
  SPECDEC_CHECK(row.scalar_type() == at::kFloat, "logits are float32 or float64, not {}",
                c10::toString(row.scalar_type()));
  return use(std::span<const float>(row.const_data_ptr<float>(), size));
}

template <class Logit>
GreedyChoice best_of(std::span<const Logit> logits, TokenSpan history, const SamplingParams& params,
                     const ScoreFilter& filter) {
  std::vector<double> scores(logits.size());
  const double best = score(logits, history, params, filter, std::span<double>(scores));
  const auto token = std::find(scores.begin(), scores.end(), best);
  *token = -std::numeric_limits<double>::infinity();
  return {static_cast<Token>(token - scores.begin()), best - largest_of(scores)};
}

template <class Logit>
LogMasses log_masses_of(std::span<const Logit> logits, TokenSpan history,
                        const SamplingParams& params, const ScoreFilter& filter, Token token) {
  const double scale = inverse(params.greedy() ? 1.0 : params.temperature);
  std::vector<double> scores(logits.size());
  const auto log_sum = [&](const ScoreFilter& used) {
    const double best = score(logits, history, params, used, std::span<double>(scores));
    const double own = scores.at(static_cast<size_t>(token)) * scale;
    return std::pair(best * scale + std::log(soften(scores, best, scale)), own);
  };
  const auto [all, own] = log_sum({});
  return {.allowed = filter ? std::min(0.0, log_sum(filter).first - all) : 0.0, .token = own - all};
}

void require(bool valid, const char* name, double value, const char* range) {
  if (!valid) {
    throw ConfigError(fmt::format("sampling.{} is {}; it must be {}", name, value, range));
  }
}

}  // namespace

void SamplingParams::validate() const {
  require(temperature >= 0.0 && std::isfinite(temperature), "temperature", temperature,
          "0 (greedy) or more");
  require(top_k >= 0, "top_k", static_cast<double>(top_k), "0 (all tokens) or more");
  require(top_p > 0.0 && top_p <= 1.0, "top_p", top_p, "above 0 and at most 1 (all tokens)");
  require(min_p >= 0.0 && min_p <= 1.0, "min_p", min_p, "from 0 (all tokens) to 1");
  require(repetition_penalty > 0.0 && std::isfinite(repetition_penalty), "repetition_penalty",
          repetition_penalty, "above 0; 1 means none");
}

void target_distribution(std::span<const float> logits, TokenSpan history,
                         const SamplingParams& params, std::span<double> distribution,
                         const ScoreFilter& filter) {
  distribution_of(logits, history, params, filter, distribution);
}

void target_distribution(std::span<const double> logits, TokenSpan history,
                         const SamplingParams& params, std::span<double> distribution,
                         const ScoreFilter& filter) {
  distribution_of(logits, history, params, filter, distribution);
}

void target_distribution(const at::Tensor& logits, TokenSpan history, const SamplingParams& params,
                         std::span<double> distribution, const ScoreFilter& filter) {
  with_values(logits,
              [&](auto values) { distribution_of(values, history, params, filter, distribution); });
}

GreedyChoice greedy_choice(const at::Tensor& logits, TokenSpan history,
                           const SamplingParams& params, const ScoreFilter& filter) {
  return with_values(logits, [&](auto values) { return best_of(values, history, params, filter); });
}

LogMasses log_masses(const at::Tensor& logits, TokenSpan history, const SamplingParams& params,
                     const ScoreFilter& filter, Token token) {
  return with_values(
      logits, [&](auto values) { return log_masses_of(values, history, params, filter, token); });
}

int64_t argmax(std::span<const double> values) {
  SPECDEC_CHECK(!values.empty(), "argmax of nothing");
  const auto found = std::find(values.begin(), values.end(), largest_of(values));
  SPECDEC_CHECK(found != values.end(), "argmax of values that are not numbers");
  return found - values.begin();
}

}  // namespace specdec
