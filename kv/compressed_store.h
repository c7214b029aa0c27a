#pragma once
#include <memory>
#include <vector>

#include "core/kernels/pooled_keys.h"
#include "core/named_rows.h"
#include "kv/forwarding_store.h"

namespace specdec {

/// Another store, in whose layers of full attention a token sees means of chunks of old keys and
/// values in place of them (Pooling), with the weight of the keys that they are of (proportional
/// attention: Bolya et al., 2022, arXiv:2210.09461); mean pooling of old activations: Rae et al.,
/// 2019, arXiv:1911.05507. Lossy. What a token sees depends on its position alone. All keys and
/// values are kept, so rows can be truncated to any length; attention reads fewer. Snapshots and
/// statistics are of the tokens, without the means, and readers() see tokens. The means lie where
/// the pages do, in memory that grows with the rows.
class CompressedStore final : public ForwardingStore {
 public:
  /// `layers`: of the store, which gives no page back before its row ends.
  CompressedStore(std::unique_ptr<KvStore> store, const std::vector<LayerKv>& layers,
                  const Pooling& pooling);

  void extend(const NewNodes& nodes) override;
  void undo_extend() override;
  KvView view(int64_t layer) const override;
  KvView describe(int64_t layer) const override;
  void commit(RowId row, std::span<const int64_t> path) override;
  void truncate(RowId row, int64_t length) override;
  RowId open() override;
  RowId fork(RowId row, int64_t length) override;
  void close(RowId row) override;
  void restore(RowId row, const KvSnapshot& snapshot, int64_t length) override;

 private:
  struct Row {
    int64_t most_made = 0;  ///< means: no layer has made more
    bool is_chain = true;   ///< its pending nodes are one
  };

  KvView with_means(int64_t layer, KvView view) const;
  PooledKeys::Sizes sizes_of(const NewNodes& nodes);
  void reserve(const PooledKeys::Sizes& sizes);
  void keep(RowId row, int64_t tokens);
  int64_t place(RowId row) const { return static_cast<int64_t>(rows_.place(row)); }

  Pooling pooling_;
  std::vector<std::unique_ptr<PooledKeys>> means_;  ///< of layers with keys of their own
  std::vector<PooledKeys*> means_of_layer_;         ///< nullptr: sees no means
  NamedRows<Row> rows_;                             ///< in the places of the other store's rows
  std::vector<RowId> extended_;                     ///< rows of the newest extend
};

}  // namespace specdec
