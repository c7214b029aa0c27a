#pragma once
#include <memory>
#include <vector>

#include "core/kernels/pooled_keys.h"
#include "core/kv_store.h"

namespace specdec {

/// Another store, in whose layers of full attention a token sees means of chunks of old keys and
/// values in place of them (Pooling), with the weight of the keys that they are of (proportional
/// attention: Bolya et al., 2022, arXiv:2210.09461); mean pooling of old activations: Rae et al.,
/// 2019, arXiv:1911.05507. Lossy. What a token sees depends on its position alone. All keys and
/// values are kept, so rows can be truncated to any length; attention reads fewer. On the CPU.
class CompressedStore final : public KvStore {
 public:
  /// `layers`: of the store, which gives no page back before its row ends.
  CompressedStore(std::unique_ptr<KvStore> store, const std::vector<LayerKv>& layers,
                  const Pooling& pooling);

  void extend(const NewNodes& nodes) override;
  void undo_extend() override;
  KvView view(int64_t layer) const override { return with_means(layer, store_->view(layer)); }
  KvView describe(int64_t layer) const override {
    return with_means(layer, store_->describe(layer));
  }
  void commit(RowId row, std::span<const int64_t> path) override;
  void truncate(RowId row, int64_t length) override;
  int64_t rewindable_to(RowId row, int64_t length) const override {
    return store_->rewindable_to(row, length);
  }
  RowId open() override { return store_->open(); }
  RowId fork(RowId row, int64_t length) override;
  void close(RowId row) override;
  /// Of the tokens; means are made anew.
  std::shared_ptr<const KvSnapshot> snapshot(RowId row) override { return store_->snapshot(row); }
  void restore(RowId row, const KvSnapshot& snapshot, int64_t length) override;
  void append(RowId row, int64_t count, const NumbersOfLayer& numbers) override {
    store_->append(row, count, numbers);
  }
  std::vector<RowId> rows() const override { return store_->rows(); }
  int64_t length(RowId row) const override { return store_->length(row); }
  int64_t pending(RowId row) const override { return store_->pending(row); }
  int64_t max_length() const override { return store_->max_length(); }
  /// Of the pages, without the means.
  KvStatistics statistics() const override { return store_->statistics(); }
  void touch(int64_t tokens) override { store_->touch(tokens); }
  /// Readers see the tokens themselves.
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

 private:
  KvView with_means(int64_t layer, KvView view) const;
  void keep(RowId row, int64_t tokens);

  std::unique_ptr<KvStore> store_;
  Pooling pooling_;
  std::vector<std::unique_ptr<PooledKeys>> means_;  ///< of layers with keys of their own
  std::vector<PooledKeys*> means_of_layer_;         ///< nullptr: sees no means
  std::vector<RowId> places_;                       ///< names of rows by their places in the tables
  std::vector<RowId> extended_;                     ///< rows of the newest extend
};

}  // namespace specdec
