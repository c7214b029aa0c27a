#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "kv/kv_cache.h"
#include "kv/state_store.h"

namespace specdec {

/// The cache of a model with recurrent layers: pages of the others in a KvCache, beside them a
/// StateStore with the same rows, lengths and pending nodes.
class StatefulStore final : public KvStore {
 public:
  /// Where no layer has keys and values, pages of a layer that
  /// nobody reads count the tokens: 256 bytes of float32 a token, in no statistics.
  StatefulStore(const std::vector<LayerKv>& layers, const KvCacheOptions& options);

  void extend(const NewNodes& nodes) override;
  void undo_extend() override;
  KvView view(int64_t layer) const override;
  KvView describe(int64_t layer) const override;
  bool make_resident(std::span<const int64_t> layers) override;
  void commit(RowId row, std::span<const int64_t> path) override;
  void truncate(RowId row, int64_t length) override;
  int64_t rewindable_to(RowId row, int64_t length) const override;
  RowId open() override;
  RowId fork(RowId row, int64_t length) override;
  void close(RowId row) override;

  /// Snapshots: all three throw Error, since a row holds more than keys and values.
  std::shared_ptr<const KvSnapshot> snapshot(RowId row) override;
  void restore(RowId row, const KvSnapshot& snapshot, int64_t length) override;
  void append(RowId row, int64_t count, const NumbersOfLayer& numbers) override;

  std::vector<RowId> rows() const override { return pages_.rows(); }
  int64_t length(RowId row) const override { return pages_.length(row); }
  int64_t pending(RowId row) const override { return pages_.pending(row); }
  int64_t max_length() const override { return pages_.max_length(); }
  /// Statistics with a layer of no bytes for each recurrent one.
  KvStatistics statistics() const override;
  RowTiers* row_tiers() const override { return row_tiers_.get(); }
  void touch(int64_t tokens) override { pages_.touch(tokens); }
  BatchTables readers(RowId row, int64_t nodes, int64_t angle) const override {
    return pages_.readers(row, nodes, angle);
  }
  std::shared_ptr<Ops> observed(std::shared_ptr<Ops> ops) override {
    return pages_.observed(std::move(ops));
  }
  /// Throws Error for a recurrent layer.
  std::pair<Tensor, Tensor> key_values(int64_t layer, RowId row,
                                       TokenRange tokens = {}) const override;

 private:
  class Tiers;

  /// Where a layer's numbers lie: in the pages of another number, or in states.
  struct Place {
    int64_t in_pages = -1;
    int64_t in_state = -1;
  };
  struct Layout {
    std::vector<Place> places;
    std::vector<LayerKv> paged;
    int64_t state_numbers = 0;
  };

  static Layout layout_of(const std::vector<LayerKv>& layers);
  StatefulStore(Layout layout, const KvCacheOptions& options);
  const Place& place(int64_t layer) const { return places_.at(static_cast<size_t>(layer)); }

  std::vector<Place> places_;
  KvCache pages_;
  StateStore states_;
  std::unique_ptr<RowTiers> row_tiers_;
};

}  // namespace specdec
