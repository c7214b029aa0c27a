#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/forward.h"
#include "core/kv_store.h"

namespace specdec {

/// How many layers have evaluated each pending node: the cache lacks the keys of deeper ones, so a
/// node of an early exit can be followed by no more layers and never be committed.
class PendingLayers {
 public:
  /// Throws InternalError when one of the batch's `nodes` follows a node that fewer than `layers`
  /// layers have evaluated.
  void check_parents(const TokenBatch& batch, int64_t nodes, int64_t layers) const;
  /// Throws InternalError for a node on the path that an early exit has evaluated; `all`: the
  /// model's layers.
  void check_commit(std::span<const int64_t> path, int64_t row, int64_t all) const;

  /// The batch's nodes are in the store and evaluated by `layers` layers.
  void note(const KvStore& store, const TokenBatch& batch, int64_t nodes, int64_t layers);
  /// Forgets nodes that the store has no more, the newest of each row.
  void shrink_to(const KvStore& store);
  void forget(int64_t row);
  void forget_all() { rows_.clear(); }

 private:
  const std::vector<int64_t>& of_row(int64_t row) const;

  std::vector<std::vector<int64_t>> rows_;  ///< [rows][pending nodes]
};

}  // namespace specdec
