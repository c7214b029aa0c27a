#pragma once
#include "core/kv_snapshot.h"
#include "core/language_model.h"

namespace specdec {

/// One row of a model as a model of its own: its row 0 is that row, other names are the model's. So
/// strategies, which know row 0 and what they open themselves, run on several rows of one model,
/// each with its own text; steps of different views may follow one another in any order. Every call
/// throws InternalError once the row is closed. Borrows the model.
class RowView final : public LanguageModel, private Internals, private KvSnapshots {
 public:
  RowView(LanguageModel& model, RowId row) : model_(model), row_(row) {}

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options = {}) override;
  void commit(std::span<const int64_t> path, RowId row = 0) override {
    model_.commit(path, own(row));
  }
  void truncate(int64_t length, RowId row = 0) override { model_.truncate(length, own(row)); }
  int64_t rewindable_to(int64_t length, RowId row = 0) const override {
    return model_.rewindable_to(length, own(row));
  }
  bool draws_drafts() const override { return model_.draws_drafts(); }
  std::optional<DrawnChain> draw_chain(TokenSpan fed, const ChainRequest& chain,
                                       const ForwardOptions& options = {},
                                       const ForwardInputs& inputs = {}, RowId row = 0) override {
    return model_.draw_chain(fed, chain, options, inputs, own(row));
  }
  std::optional<DrawnTree> draw_tree(TokenSpan fed, const TreeRequest& tree,
                                     const ForwardOptions& options = {},
                                     const ForwardInputs& inputs = {}, RowId row = 0) override {
    return model_.draw_tree(fed, tree, options, inputs, own(row));
  }
  RowId open() override { return model_.open(); }
  RowId fork(RowId row, int64_t length) override { return model_.fork(own(row), length); }
  /// Closes a row other than 0, the view's, which whoever opened it closes.
  void close(RowId row) override;
  int64_t length(RowId row = 0) const override { return model_.length(own(row)); }
  int64_t pending(RowId row = 0) const override { return model_.pending(own(row)); }
  int64_t vocab_size() const override { return model_.vocab_size(); }
  const DraftVocabulary* draft_vocabulary() const override { return model_.draft_vocabulary(); }
  int64_t max_length() const override { return model_.max_length(); }
  const Internals* internals() const override;
  KvSnapshots* snapshots() override;

 private:
  RowId own(RowId row) const { return row == 0 ? row_ : row; }
  const Internals& inner() const { return *model_.internals(); }

  // Internals
  int64_t hidden_size() const override { return inner().hidden_size(); }
  int64_t num_layers() const override { return inner().num_layers(); }
  Tensor embed(const Tensor& tokens) const override { return inner().embed(tokens); }
  bool embeds_by_layer() const override { return inner().embeds_by_layer(); }
  Tensor head(const Tensor& hidden) const override { return inner().head(hidden); }
  std::pair<Tensor, Tensor> key_values(int64_t layer, RowId row, TokenRange tokens) const override {
    return inner().key_values(layer, own(row), tokens);
  }
  KvView read_keys(int64_t layer, const BatchTables& readers) const override {
    return inner().read_keys(layer, readers);
  }
  BatchTables readers(RowId row, int64_t nodes, int64_t angle) const override {
    return inner().readers(own(row), nodes, angle);
  }
  bool keys_may_be_recorded() const override { return inner().keys_may_be_recorded(); }
  int64_t kept_length(RowId row) const override { return inner().kept_length(own(row)); }

  // KvSnapshots
  std::string kv_key() const override { return model_.snapshots()->kv_key(); }
  std::shared_ptr<const KvSnapshot> kv_snapshot(RowId row) override {
    return model_.snapshots()->kv_snapshot(own(row));
  }
  void kv_restore(const KvSnapshot& snapshot, int64_t length, RowId row) override {
    model_.snapshots()->kv_restore(snapshot, length, own(row));
  }
  void kv_follow(const Internals& other, int64_t length, RowId row) override {
    model_.snapshots()->kv_follow(other, length, own(row));
  }

  LanguageModel& model_;
  RowId row_;
};

}  // namespace specdec
