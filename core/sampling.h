#pragma once
#include <span>
#include <vector>

#include "core/scores.h"
#include "core/token_probs.h"

namespace specdec {

/// Parameters by which logits become the distribution that tokens are drawn from. Speculation is
/// measured against this processed distribution, not against the raw softmax.
struct SamplingParams {
  double temperature = 0.0;         ///< 0 = greedy: all the mass on the best token
  int64_t top_k = 0;                ///< keep the k most likely tokens; 0 = all
  double top_p = 1.0;               ///< keep the smallest set whose mass reaches top_p (nucleus)
  double min_p = 0.0;               ///< drop tokens below min_p * (mass of the best token)
  double repetition_penalty = 1.0;  ///< CTRL's (Keskar et al., 2019): of tokens seen already,
                                    ///< positive logits are divided by it, negative multiplied
  LogitBias logit_bias = {};        ///< added to the logits before all of these; -inf forbids

  bool greedy() const { return temperature == 0.0; }
  /// Whether something is done to the logits before the temperature.
  bool changes_logits() const { return repetition_penalty != 1.0 || !logit_bias.empty(); }
  /// Whether the bias forbids a token.
  bool forbids(Token token) const;
  /// Throws ConfigError naming the value that is out of range.
  void validate() const;
};

/// The distribution of the next token: bias, penalty, forbidden tokens, temperature, top-k, top-p,
/// min-p, in this order, in float64. `history` is everything before the token (prompt and output).
/// Ties at the border of top-k and top-p go to the lower token id; greedy ties too. A logit of -inf
/// forbids its token. Throws Error when a logit is not a number or none is finite.
///
/// After top-k, top-p or min-p, and when greedy, it is the few tokens that are left, found by a
/// threshold on the logits; else it keeps the logits, and makes probabilities of them on demand.
TokenProbs token_probs(LogitRow logits, TokenSpan history, const SamplingParams& params,
                       AllowedTokens allowed = nullptr);

/// Writes all of its probabilities, [vocab]. Logits: one row.
void target_distribution(std::span<const float> logits, TokenSpan history,
                         const SamplingParams& params, std::span<double> distribution,
                         AllowedTokens allowed = nullptr);
void target_distribution(std::span<const double> logits, TokenSpan history,
                         const SamplingParams& params, std::span<double> distribution,
                         AllowedTokens allowed = nullptr);
void target_distribution(const at::Tensor& logits, TokenSpan history, const SamplingParams& params,
                         std::span<double> distribution, AllowedTokens allowed = nullptr);

/// The best allowed token after bias and repetition penalty; the lowest id on a tie.
GreedyChoice greedy_choice(LogitRow logits, TokenSpan history, const SamplingParams& params,
                           AllowedTokens allowed = nullptr);

/// Logarithms of masses of the distribution by bias, penalty and temperature (1 for temperature 0),
/// before the mask, top-k, top-p and min-p.
struct LogMasses {
  double allowed = 0.0;  ///< mass of all tokens that are allowed: log Z of a grammar's mask
  double token = 0.0;    ///< mass of one token
};
LogMasses log_masses(const LogitRow& logits, TokenSpan history, const SamplingParams& params,
                     const AllowedTokens& allowed, Token token);

/// Index of the largest value; the lowest index on a tie.
int64_t argmax(std::span<const double> values);

}  // namespace specdec
