#pragma once
#include <vector>

#include "core/language_model.h"

namespace specdec {

/// A model without a cache: what follows a node is computed by one prefill of everything before it.
/// The oracle of cached decoding, with which it agrees bit for bit wherever a token's bits do not
/// depend on what it is evaluated with; a text of n tokens costs n prefills. It has no internals,
/// so drafters that live on a target's states or layers are refused.
class UncachedModel final : public LanguageModel {
 public:
  /// Borrows the model, whose rows it overwrites.
  explicit UncachedModel(LanguageModel& model) : model_(model) {}

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options = {}) override;
  void commit(std::span<const int64_t> path, int64_t row = 0) override;
  void truncate(int64_t length, int64_t row = 0) override;
  void reorder(std::span<const int64_t> parents) override;
  int64_t length(int64_t row = 0) const override;
  int64_t pending(int64_t row = 0) const override;
  int64_t vocab_size() const override { return model_.vocab_size(); }
  const DraftVocabulary* draft_vocabulary() const override { return model_.draft_vocabulary(); }
  int64_t max_length() const override { return model_.max_length(); }

 private:
  struct Node {
    Token token = 0;
    int64_t parent = -1;
  };
  struct Row {
    std::vector<Token> kept;
    std::vector<Node> pending;
  };
  struct Place {  // of a new node
    size_t row = 0;
    int64_t node = 0;
  };

  static std::vector<Place> append(const TokenBatch& batch, std::vector<Row>& rows);
  static std::vector<Token> history(const Row& row, int64_t node);

  LanguageModel& model_;
  std::vector<Row> rows_;
};

}  // namespace specdec
