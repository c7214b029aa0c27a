#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/language_model.h"
#include "core/named_rows.h"

namespace specdec {

/// The logits after a history (prompt and output), one a vocabulary entry: a fake model's
/// "weights".
using LogitTable = std::function<std::vector<double>(TokenSpan history)>;

/// Random logits, normal with deviation `spread`, fixed by seed and the last `context` tokens.
LogitTable random_table(int64_t vocab, uint64_t seed, int64_t context = 2, double spread = 1.5);
/// (1 - share) * a + share * b: a drafter that resembles its target.
LogitTable mixed_table(LogitTable a, LogitTable b, double share);

/// A language model that looks its logits up: float64, exact, with rows, trees and checks like the
/// real one's. Hidden states and captured layers are numbers fixed by history and layer, so that
/// what a drafter receives can be told apart.
class FakeModel final : public LanguageModel {
 public:
  static constexpr int64_t kHidden = 3;

  FakeModel(int64_t vocab, LogitTable table, int64_t max_length = 64);

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options = {}) override;
  void commit(std::span<const int64_t> path, RowId row = 0) override;
  void truncate(int64_t length, RowId row = 0) override;
  RowId open() override { return rows_.open(); }
  RowId fork(RowId row, int64_t length) override;
  void close(RowId row) override { rows_.close(row); }
  int64_t length(RowId row = 0) const override { return std::ssize(rows_[row].kept); }
  int64_t pending(RowId row = 0) const override { return std::ssize(rows_[row].pending); }
  int64_t vocab_size() const override { return vocab_; }
  int64_t max_length() const override { return max_length_; }

  /// Lets the model give the best tokens from now on, instead of logits where nothing else is read,
  /// as a model on a device does.
  void give_best_tokens() { gives_best_ = true; }
  /// Whether a forward gave them.
  bool gave_best_tokens() const { return gave_best_; }
  /// Keeps logits that are for a sampler alone for this one from now on, in float32, as those of a
  /// model on a device are.
  void keep_logits_for(std::shared_ptr<DeviceSampler> sampler) { sampler_ = std::move(sampler); }
  /// Tokens of each forward so far.
  const std::vector<int64_t>& forwards() const { return forwards_; }
  /// Kept tokens of a row.
  const std::vector<Token>& kept(RowId row = 0) const { return rows_[row].kept; }
  /// The hidden state that forward gives after `history`; `layer` -1 = the final one.
  static std::vector<double> hidden_state(TokenSpan history, int64_t layer);

 private:
  struct Node {
    Token token = 0;
    int64_t parent = -1;
  };
  struct Row {
    std::vector<Token> kept = {};
    std::vector<Node> pending = {};
  };
  struct Place {  // of a new node
    RowId row = 0;
    int64_t node = 0;
  };

  std::vector<Place> append(const TokenBatch& batch);
  std::vector<Token> history(const Place& place) const;

  int64_t vocab_;
  LogitTable table_;
  bool gives_best_ = false;
  bool gave_best_ = false;
  std::shared_ptr<DeviceSampler> sampler_;
  int64_t max_length_;
  NamedRows<Row> rows_;
  std::vector<int64_t> forwards_;
};

}  // namespace specdec
