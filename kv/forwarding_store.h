#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "core/kv_store.h"

namespace specdec {

/// Another store, unchanged: for those that wrap one and change or note some of its calls.
class ForwardingStore : public KvStore {
 public:
  explicit ForwardingStore(std::unique_ptr<KvStore> store) : store_(std::move(store)) {}

  void extend(const NewNodes& nodes) override { store_->extend(nodes); }
  void undo_extend() override { store_->undo_extend(); }
  KvView view(int64_t layer) const override { return store_->view(layer); }
  KvView describe(int64_t layer) const override { return store_->describe(layer); }
  bool make_resident(std::span<const int64_t> layers) override {
    return store_->make_resident(layers);
  }
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
  std::shared_ptr<Ops> observed(std::shared_ptr<Ops> ops) override {
    return store_->observed(std::move(ops));
  }
  RowTiers* row_tiers() const override { return store_->row_tiers(); }
  const KvTrace* trace() const override { return store_->trace(); }

 private:
  std::unique_ptr<KvStore> store_;
};

}  // namespace specdec
