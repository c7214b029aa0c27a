#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/kernels/probs.h"
#include "core/sampling.h"

namespace specdec {

/// The logits of one token, and what becomes of them.
struct SampledRow {
  std::vector<double> logits;
  std::vector<Token> history;
  SamplingParams params;
  AllowedTokens allowed;
};

/// The definition of a row's distribution: one float64 score, mass and probability a token, and
/// sorting everything. What core/token_probs.h finds quicker is compared with this.
class DenseDistribution {
 public:
  explicit DenseDistribution(const SampledRow& row) : params_(row.params), masses_(row.logits) {
    score(row);
    best_ = *std::max_element(masses_.begin(), masses_.end());
    if (!std::isfinite(best_)) {
      return;
    }
    std::vector<double> others = masses_;
    const auto first = std::find(others.begin(), others.end(), best_);
    greedy_.token = static_cast<Token>(first - others.begin());
    *first = -std::numeric_limits<double>::infinity();
    greedy_.gap = best_ - *std::max_element(others.begin(), others.end());
    if (params_.greedy()) {
      std::fill(masses_.begin(), masses_.end(), 0.0);
      masses_[static_cast<size_t>(greedy_.token)] = 1.0;
    } else {
      const double scale = std::min(1.0 / params_.temperature, std::numeric_limits<double>::max());
      soften(masses_, best_, scale, masses_);
      truncate();
    }
    const long double sum = std::accumulate(masses_.begin(), masses_.end(), 0.0L);
    probs_ = masses_;
    std::for_each(probs_.begin(), probs_.end(),
                  [sum](double& mass) { mass = static_cast<double>(mass / sum); });
  }

  /// Probabilities of all tokens; empty when no token is possible.
  const std::vector<double>& probs() const { return probs_; }
  const GreedyChoice& greedy() const { return greedy_; }
  /// True when rounding decides which token is the last of top-p.
  bool is_ambiguous() const { return ambiguous_; }
  /// The most likely tokens that have any mass, equal ones by their ids.
  std::vector<Token> top(size_t count) const {
    std::vector<Token> ids = by_mass(masses_);
    ids.resize(std::min(count, ids.size()));
    std::erase_if(ids, [this](Token id) { return masses_[static_cast<size_t>(id)] <= 0.0; });
    return ids;
  }

 private:
  static std::vector<Token> by_mass(const std::vector<double>& masses) {
    std::vector<Token> ids(masses.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](Token a, Token b) {
      return masses[static_cast<size_t>(a)] > masses[static_cast<size_t>(b)];
    });
    return ids;
  }

  void score(const SampledRow& row) {
    for (const auto& [token, summand] : params_.logit_bias) {
      masses_[static_cast<size_t>(token)] += summand;
    }
    const std::vector<double> biased = masses_;
    for (const Token token : row.history) {
      const double logit = biased[static_cast<size_t>(token)];
      const double penalty = params_.repetition_penalty;
      masses_[static_cast<size_t>(token)] = logit > 0.0 ? logit / penalty : logit * penalty;
    }
    for (size_t token = 0; row.allowed != nullptr && token < masses_.size(); ++token) {
      const bool is_allowed = token / 32 < row.allowed->size() &&
                              ((*row.allowed)[token / 32] >> (token % 32) & 1U) != 0;
      masses_[token] = is_allowed ? masses_[token] : -std::numeric_limits<double>::infinity();
    }
  }

  void truncate() {
    std::vector<Token> ids = by_mass(masses_);
    if (params_.top_k > 0 && params_.top_k < std::ssize(ids)) {
      ids.resize(static_cast<size_t>(params_.top_k));
    }
    if (params_.top_p < 1.0) {
      keep_nucleus(ids);
    }
    std::vector<double> kept(masses_.size(), 0.0);
    for (const Token id : ids) {
      const double mass = masses_[static_cast<size_t>(id)];
      kept[static_cast<size_t>(id)] = mass < params_.min_p ? 0.0 : mass;
    }
    masses_ = kept;
  }

  void keep_nucleus(std::vector<Token>& ids) {
    const long double all = std::accumulate(
        ids.begin(), ids.end(), 0.0L,
        [this](long double sum, Token id) { return sum + masses_[static_cast<size_t>(id)]; });
    const long double wanted = params_.top_p * all;
    long double reached = 0.0;
    for (size_t i = 0; i < ids.size(); ++i) {
      reached += masses_[static_cast<size_t>(ids[i])];
      ambiguous_ = ambiguous_ || std::abs(reached - wanted) < 1e-12 * wanted;
      if (reached >= wanted) {
        ids.resize(i + 1);
        return;
      }
    }
  }

  SamplingParams params_;
  std::vector<double> masses_;  // at first the scores
  std::vector<double> probs_;
  double best_ = 0.0;
  GreedyChoice greedy_;
  bool ambiguous_ = false;
};

}  // namespace specdec
