#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <span>

#include "core/randomness.h"
#include "core/types.h"

namespace specdec {

/// How logits become the distribution that tokens are drawn from. Speculation is measured against
/// this processed distribution, not against the raw softmax.
struct SamplingParams {
  double temperature = 0.0;         ///< 0 = greedy: all the mass on the best token
  int64_t top_k = 0;                ///< keep the k most likely tokens; 0 = all
  double top_p = 1.0;               ///< keep the smallest set whose mass reaches top_p (nucleus)
  double min_p = 0.0;               ///< drop tokens below min_p * (mass of the best token)
  double repetition_penalty = 1.0;  ///< CTRL's (Keskar et al., 2019): of tokens seen already,
                                    ///< positive logits are divided by it, negative multiplied

  bool greedy() const { return temperature == 0.0; }
  /// Throws ConfigError naming the value that is out of range.
  void validate() const;
};

/// Sets the scores of forbidden tokens to -inf; empty when all tokens are allowed.
using ScoreFilter = std::function<void(std::span<double> scores)>;

/// The distribution of the next token: penalty, filter, temperature, top-k, top-p, min-p, in this
/// order, in float64. `history` is everything before the token (prompt and output). Ties at the
/// border of top-k and top-p go to the lower token id; greedy ties too. Writes `vocab`
/// probabilities that sum to one. A logit of -inf forbids its token. Throws Error when a logit is
/// not a number or none is finite.
void target_distribution(std::span<const float> logits, TokenSpan history,
                         const SamplingParams& params, std::span<double> distribution,
                         const ScoreFilter& filter = {});
void target_distribution(std::span<const double> logits, TokenSpan history,
                         const SamplingParams& params, std::span<double> distribution,
                         const ScoreFilter& filter = {});
/// The same for one row of logits, float32 or float64 on any device.
void target_distribution(const at::Tensor& logits, TokenSpan history, const SamplingParams& params,
                         std::span<double> distribution, const ScoreFilter& filter = {});

/// What greedy decoding takes from a row of logits.
struct GreedyChoice {
  Token token = 0;
  double gap = 0.0;  ///< processed logit of the token minus the second best; infinite when no other
                     ///< token is possible
};

/// The best token after the repetition penalty and the filter; the lowest id on a tie.
GreedyChoice greedy_choice(const at::Tensor& logits, TokenSpan history,
                           const SamplingParams& params, const ScoreFilter& filter = {});

/// Logarithms of masses of the distribution by penalty and temperature (1 for temperature 0),
/// before filter, top-k, top-p and min-p.
struct LogMasses {
  double allowed = 0.0;  ///< of all tokens that the filter leaves: log Z of a grammar's mask
  double token = 0.0;    ///< of one token
};
LogMasses log_masses(const at::Tensor& logits, TokenSpan history, const SamplingParams& params,
                     const ScoreFilter& filter, Token token);

/// Index of the largest value; the lowest index on a tie.
int64_t argmax(std::span<const double> values);

}  // namespace specdec
