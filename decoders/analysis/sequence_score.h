#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/language_model.h"

namespace specdec {

/// Reads a given sequence with a model, piece by piece: the raw distribution (softmax of the
/// logits, unprocessed) of each token from `first` on, given all tokens before it.
class LogProbReader {
 public:
  /// 1 <= first < tokens.size(). Forgets every row of the model; model and tokens outlive the
  /// reader. Throws Error for more tokens than the model holds and one (the last is not fed), and
  /// for tokens outside its vocabulary.
  LogProbReader(LanguageModel& model, TokenSpan tokens, int64_t first = 1);

  /// Index of the token that the first row of the next piece is the distribution of.
  int64_t position() const { return position_; }
  bool done() const { return position_ >= static_cast<int64_t>(tokens_.size()); }
  /// Log-probabilities [n, vocab] float64 on the CPU of the tokens from position() on, which then
  /// moves by n. Readers of the same tokens and vocabulary read the same pieces. Throws Error when
  /// a distribution is not a number.
  Tensor next();

 private:
  LanguageModel& model_;
  TokenSpan tokens_;
  int64_t position_;
  Tensor prompt_logits_;  // [1, vocab]; undefined once read
};

/// What a model says of a given sequence.
struct SequenceScore {
  std::vector<double> log_probs;  ///< log-probability of each token but the first
  /// Comparison with another model q at the same positions; p is the model itself.
  struct Comparison {
    std::vector<double> log_probs;  ///< log-probabilities by q
    std::vector<double> kl;         ///< KL(p || q) of each token's distributions, nats
    double overlap = 0.0;   ///< summed: sum_x min(p, q) = 1 - total variation: the probability that
                            ///< a token drafted by q is accepted
    int64_t same_best = 0;  ///< positions where both have the same most likely token
  };
  std::optional<Comparison> comparison;
};

/// Scores tokens[1...]; the first token (<bos>) is only context. `other` is nullptr, or has the
/// same vocabulary. As LogProbReader, it forgets the rows of both.
SequenceScore score_sequence(LanguageModel& model, TokenSpan tokens, LanguageModel* other);

/// Mean KL of the tokens in each quarter of their sequences, all of which were compared: 4 numbers.
std::vector<double> kl_by_quarter(std::span<const SequenceScore> scores);

/// Sum of the log-probabilities of `output`, which follows `prompt`; neither is empty. As
/// LogProbReader, it forgets the model's rows.
double output_log_prob(LanguageModel& model, TokenSpan prompt, TokenSpan output);

}  // namespace specdec
