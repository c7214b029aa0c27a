#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/forward.h"
#include "core/kv_store.h"

namespace specdec {

/// Layers of a forward, ascending.
using LayerList = std::shared_ptr<const std::vector<int64_t>>;

/// Stands for layers of a model of `all` that evaluated a node by upper halves of the cache
/// (ForwardOptions::kv_read): they are no layers of any other forward.
LayerList upper_half_layers(const std::vector<int64_t>& layers, int64_t all);

/// Which layers have evaluated each pending node: the cache lacks its keys of the others, so such a
/// node can be followed by no other layers and never be committed.
class PendingLayers {
 public:
  /// Throws InternalError when one of the batch's `nodes` follows a node that one of `layers` has
  /// not evaluated.
  void check_parents(const TokenBatch& batch, int64_t nodes, const LayerList& layers) const;
  /// Throws InternalError for a node on the path that one of `all`, the model's layers, has not
  /// evaluated.
  void check_commit(std::span<const int64_t> path, RowId row, const LayerList& all) const;

  /// The batch's nodes are in the store and evaluated by `layers`.
  void note(const TokenBatch& batch, int64_t nodes, const LayerList& layers);
  /// Forgets nodes that the store has no more, the newest of each row.
  void shrink_to(const KvStore& store);
  /// The row has no pending nodes any more.
  void forget(RowId row);
  /// Forgets a row that has been closed.
  void close(RowId row) { rows_.erase(row); }

 private:
  const std::vector<LayerList>& of_row(RowId row) const;

  /// [pending nodes] of open rows that ever had some; kept so that a step allocates nothing.
  std::map<RowId, std::vector<LayerList>> rows_;
};

}  // namespace specdec
