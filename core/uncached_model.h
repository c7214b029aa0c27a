#pragma once
#include <vector>

#include "core/language_model.h"
#include "core/named_rows.h"

namespace specdec {

/// A model without a cache: what follows a node is computed by one prefill of everything before it.
/// The oracle of cached decoding, with which it agrees bit for bit wherever a token's bits do not
/// depend on what it is evaluated with; a text of n tokens costs n prefills. It has no internals,
/// so drafters that live on a target's states or layers are refused.
class UncachedModel final : public LanguageModel {
 public:
  /// Borrows the model, whose row 0 it overwrites.
  explicit UncachedModel(LanguageModel& model) : model_(model) {}

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options = {}) override;
  void commit(std::span<const int64_t> path, RowId row = 0) override;
  void truncate(int64_t length, RowId row = 0) override;
  RowId open() override { return rows_.open(); }
  RowId fork(RowId row, int64_t length) override;
  void close(RowId row) override { rows_.close(row); }
  int64_t length(RowId row = 0) const override { return std::ssize(rows_[row].kept); }
  int64_t pending(RowId row = 0) const override { return std::ssize(rows_[row].pending); }
  int64_t vocab_size() const override { return model_.vocab_size(); }
  const DraftVocabulary* draft_vocabulary() const override { return model_.draft_vocabulary(); }
  int64_t max_length() const override { return model_.max_length(); }

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

  static std::vector<Place> append(const TokenBatch& batch, NamedRows<Row>& rows);
  static std::vector<Token> history(const Row& row, int64_t node);

  LanguageModel& model_;
  NamedRows<Row> rows_;
};

}  // namespace specdec
