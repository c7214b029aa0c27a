#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/types.h"

namespace specdec {

/// One row of a model's logits, float32 or float64 on the CPU.
struct LogitRow {
  at::Tensor owner;  ///< keeps the values; undefined = the caller does
  std::variant<std::span<const float>, std::span<const double>> values;

  /// Row `row` of logits [n, vocab], float32 or float64 on any device; copies only what is not
  /// contiguous on the CPU.
  static LogitRow of(const at::Tensor& logits, int64_t row);
  /// Logits [vocab].
  static LogitRow of(const at::Tensor& logits);
};

/// Says that logits are no numbers, after how many tokens where that is known, and what helps.
std::string damaged_logits(std::optional<int64_t> tokens = {});
/// What to say where a bias of -inf forbids every token, or all that a grammar allows.
std::string forbidden_logits();

/// Set of allowed tokens: one bit each, 32 to a word, the lowest first; tokens beyond the last
/// word are forbidden. nullptr = all are allowed.
using AllowedTokens = std::shared_ptr<const std::vector<uint32_t>>;

/// Summands of tokens' logits; -inf forbids its token.
using LogitBias = std::map<Token, double>;

/// Whether a mask and a bias of -inf leave none of `size` tokens.
bool forbids_all(const LogitBias& bias, const AllowedTokens& allowed, int64_t size);

/// CTRL's penalty of the tokens of a history: positive logits are divided by it, negative ones
/// multiplied. A token that was seen twice pays once.
struct RepetitionPenalty {
  TokenSpan history;
  double factor = 1.0;
};

/// The processed logits of the next token: first biased, then, where they were seen, penalised,
/// those of forbidden tokens -inf. There is no row of them: only what bias and penalty change is
/// kept, and a block of kProbsBlock scores is made, in float64, when it is asked for.
class Scores {
 public:
  /// Throws Error when a score is NaN or +inf, or none is finite. InternalError for a token of bias
  /// or history outside the vocabulary.
  Scores(LogitRow logits, const LogitBias& bias, const RepetitionPenalty& penalty,
         AllowedTokens allowed);

  int64_t size() const { return size_; }
  double best() const { return best_; }
  /// The largest of each block.
  std::span<const double> maxima() const { return maxima_; }
  size_t size_of(int64_t block) const;
  /// Score of one token.
  double of(Token token) const;
  /// Writes the scores of a block.
  void fill(int64_t block, std::span<double> scores) const;
  /// Writes the masses exp((score - best) * scale) of a block; returns their sum.
  double fill_masses(int64_t block, double scale, std::span<double> masses) const;
  /// The sums of the masses of each block.
  std::vector<double> mass_sums(double scale) const;

 private:
  /// A score that bias or penalty changed.
  struct Change {
    Token token = 0;
    double score = 0.0;
  };
  double logit(Token token) const;
  /// `seen` ascends.
  void change(const LogitBias& bias, TokenSpan seen, double penalty);
  void find_maxima();
  /// Changes of the tokens of a block.
  std::span<const Change> changes_in(int64_t block) const;
  /// The bits of a block's allowed tokens, a word each 32 tokens.
  uint32_t allowed_word(size_t word) const;
  /// What is known of a block without reading it: its scores are the logits, or all -inf, or
  /// neither.
  enum class Content { kLogits, kNothing, kMixed };
  Content content_of(int64_t block) const;

  LogitRow logits_;
  AllowedTokens allowed_;
  int64_t size_ = 0;
  std::vector<Change> changes_;  // ascending by token
  std::vector<double> maxima_;
  double best_ = 0.0;
};

}  // namespace specdec
