#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/language_model.h"
#include "core/sampling.h"
#include "decoders/analysis/sequence_distribution.h"

namespace specdec {

/// Logits after growing histories by plain forwards of one new token, as plain decoding makes them:
/// what is common with the history before stays in the cache.
class PlainLogits {
 public:
  /// Borrows the model, which nobody else uses meanwhile.
  explicit PlainLogits(LanguageModel& model) : model_(model) {}
  /// [vocab], on the CPU.
  Tensor row(TokenSpan history);
  NextLogits function();

 private:
  LanguageModel& model_;
  std::vector<Token> cached_;
};

/// A model that notes the logits after one watched history, in whichever forward of all layers they
/// are made.
class WatchedModel final : public LanguageModel {
 public:
  struct Sight {
    Tensor logits;      ///< [vocab], on the CPU
    int64_t width = 0;  ///< nodes in that forward
  };

  /// Borrows the model.
  WatchedModel(LanguageModel& model, std::vector<Token> history)
      : model_(model), watched_(std::move(history)) {}
  /// The first forward that held the watched history; none when there was none.
  const std::optional<Sight>& sight() const { return sight_; }

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options = {}) override;
  void commit(std::span<const int64_t> path, RowId row = 0) override;
  void truncate(int64_t length, RowId row = 0) override;
  int64_t rewindable_to(int64_t length, RowId row = 0) const override {
    return model_.rewindable_to(length, row);
  }
  RowId open() override { return model_.open(); }
  RowId fork(RowId row, int64_t length) override;
  void close(RowId row) override;
  int64_t length(RowId row = 0) const override { return model_.length(row); }
  int64_t pending(RowId row = 0) const override { return model_.pending(row); }
  int64_t vocab_size() const override { return model_.vocab_size(); }
  int64_t max_length() const override { return model_.max_length(); }
  const Internals* internals() const override { return model_.internals(); }

 private:
  struct Row {
    std::vector<Token> kept;
    std::vector<std::vector<Token>> pending;  ///< tokens from the kept ones to each node
  };
  void look(const TokenBatch& batch, const ForwardOptions& options, const ForwardResult& result);

  LanguageModel& model_;
  std::vector<Token> watched_;
  std::map<RowId, Row> rows_;
  std::optional<Sight> sight_;
};

/// Whose fault it is that a greedy strategy left the tokens of plain decoding.
enum class DivergenceCause {
  kNearTie,         ///< rounding: both gaps are within kNearTieUlps, the forward's width decided
  kOtherLogits,     ///< the forwards see different things: cache, positions or mask are wrong
  kNotItsBest,      ///< the strategy did not take the best token of its own forward
  kWrongEnd,        ///< the strategy ended too early or went on after the end
  kNeverEvaluated,  ///< no forward of the strategy held the tokens before the difference
  kNotRepeatable,   ///< a new strategy on this prompt alone gives other tokens
};
/// "near_tie", "other_logits", "not_its_best", "wrong_end", "never_evaluated", "not_repeatable"
std::string cause_name(DivergenceCause cause);

/// The first difference of a greedy strategy from plain decoding.
struct TokenDivergence {
  int64_t position = 0;    ///< index of the first new token that differs
  Token token_plain = -1;  ///< -1: the output had ended
  Token token_other = -1;
  double gap_plain = 0.0;  ///< best minus second best processed logit, in a forward of one token
  double gap_other = 0.0;  ///< the same in the strategy's own forward; NaN when it made none
  double ulp = 0.0;        ///< of float32 at the best logit
  double logit_difference = 0.0;  ///< largest between the two forwards
  int64_t width = 0;              ///< nodes in the strategy's forward; 0 when it made none
  bool own_choice = true;         ///< the strategy's token is the best one of its own forward
  bool repeated = true;           ///< false: a second run, alone, did not show this difference

  DivergenceCause cause() const;
};
inline constexpr double kNearTieUlps = 16.0;

/// Describes a divergence in words: where, gaps, near tie or not, widths, and whose fault it is.
std::string explain(const TokenDivergence& divergence);

/// The index of the first difference; none when they are equal.
std::optional<int64_t> first_difference(TokenSpan plain, TokenSpan other);

/// What happened at the first difference, from the logits [vocab] of both forwards there, which are
/// not read where one output has ended. `own`: what the strategy's forward gave, if it made one.
TokenDivergence describe_divergence(TokenSpan plain, TokenSpan other, int64_t position,
                                    const Tensor& plain_logits,
                                    const std::optional<WatchedModel::Sight>& own,
                                    const Task& task);

}  // namespace specdec
