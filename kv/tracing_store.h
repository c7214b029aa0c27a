#pragma once
#include <memory>

#include "core/kv_store.h"

namespace specdec {

/// Another store, whose forwards' writes and reads are counted by layer, page and age (KvTrace),
/// with the weights that attention gave to what it read. Changes no bit. On the CPU; attention
/// is computed once more in float64, which takes many times as long as the forward itself.
class TracingStore final : public KvStore {
 public:
  /// `layers`: how many there are.
  TracingStore(std::unique_ptr<KvStore> store, int64_t layers);

  void extend(const NewNodes& nodes) override;
  void undo_extend() override { store_->undo_extend(); }
  KvView view(int64_t layer) const override;
  KvView describe(int64_t layer) const override { return store_->describe(layer); }
  void commit(RowId row, std::span<const int64_t> path) override { store_->commit(row, path); }
  void truncate(RowId row, int64_t length) override { store_->truncate(row, length); }
  int64_t rewindable_to(RowId row, int64_t length) const override {
    return store_->rewindable_to(row, length);
  }
  RowId open() override { return store_->open(); }
  RowId fork(RowId row, int64_t length) override { return store_->fork(row, length); }
  void close(RowId row) override { store_->close(row); }
  std::shared_ptr<const KvSnapshot> snapshot(RowId row) override { return store_->snapshot(row); }
  void restore(RowId row, const KvSnapshot& snapshot, int64_t length) override {
    store_->restore(row, snapshot, length);
  }
  void append(RowId row, int64_t count, const NumbersOfLayer& numbers) override {
    store_->append(row, count, numbers);
  }
  std::vector<RowId> rows() const override { return store_->rows(); }
  int64_t length(RowId row) const override { return store_->length(row); }
  int64_t pending(RowId row) const override { return store_->pending(row); }
  int64_t max_length() const override { return store_->max_length(); }
  KvStatistics statistics() const override { return store_->statistics(); }
  void touch(int64_t tokens) override { store_->touch(tokens); }
  BatchTables readers(RowId row, int64_t nodes, int64_t angle) const override {
    return store_->readers(row, nodes, angle);
  }
  std::pair<Tensor, Tensor> key_values(int64_t layer, RowId row,
                                       TokenRange tokens = {}) const override {
    return store_->key_values(layer, row, tokens);
  }
  /// Counts what layers read whose view was the newest when their attention ran.
  std::shared_ptr<Ops> observed(std::shared_ptr<Ops> ops) override;
  const KvTrace* trace() const override;

 private:
  class Recorder;
  class RecordingOps;
  std::unique_ptr<KvStore> store_;
  std::shared_ptr<Recorder> recorder_;  ///< shared with the ops
};

}  // namespace specdec
