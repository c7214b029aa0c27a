#include "core/transformer/pending_layers.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {
namespace {

RowId row_of(const TokenBatch& batch, int64_t node) {
  return batch.rows.empty() ? 0 : batch.rows[static_cast<size_t>(node)];
}

bool holds_all(const LayerList& evaluated, const LayerList& layers) {
  return evaluated == layers ||
         std::includes(evaluated->begin(), evaluated->end(), layers->begin(), layers->end());
}

}  // namespace

LayerList upper_half_layers(const std::vector<int64_t>& layers, int64_t all) {
  auto marks = std::make_shared<std::vector<int64_t>>(layers);
  for (int64_t& layer : *marks) {
    layer -= all;
  }
  return marks;
}

const std::vector<LayerList>& PendingLayers::of_row(RowId row) const {
  static const std::vector<LayerList> none;
  const auto found = rows_.find(row);
  return found == rows_.end() ? none : found->second;
}

void PendingLayers::check_parents(const TokenBatch& batch, int64_t nodes,
                                  const LayerList& layers) const {
  const bool chained = batch.parents.empty();
  const int64_t count =
      std::min(nodes, chained ? nodes : static_cast<int64_t>(batch.parents.size()));
  for (int64_t node = 0; node < count; ++node) {
    const auto& pending = of_row(row_of(batch, node));
    const int64_t parent = chained ? static_cast<int64_t>(pending.size()) - 1
                                   : batch.parents[static_cast<size_t>(node)];
    const bool old = parent >= 0 && parent < static_cast<int64_t>(pending.size());
    SPECDEC_CHECK(
        !old || holds_all(pending[static_cast<size_t>(parent)], layers),
        "forward: pending node {} was evaluated by some layers only, or by upper halves of "
        "the cache, and cannot be followed by others",
        parent);
  }
}

void PendingLayers::check_commit(std::span<const int64_t> path, RowId row,
                                 const LayerList& all) const {
  const auto& pending = of_row(row);
  for (const int64_t node : path) {
    const bool exists = node >= 0 && node < static_cast<int64_t>(pending.size());
    SPECDEC_CHECK(
        !exists || holds_all(pending[static_cast<size_t>(node)], all),
        "commit: node {} of row {} was evaluated by some layers only, or by upper halves of "
        "the cache; run a full forward of it first",
        node, row);
  }
}

void PendingLayers::note(const TokenBatch& batch, int64_t nodes, const LayerList& layers) {
  for (int64_t node = 0; node < nodes; ++node) {
    rows_[row_of(batch, node)].push_back(layers);
  }
}

void PendingLayers::forget(RowId row) {
  if (const auto found = rows_.find(row); found != rows_.end()) {
    found->second.clear();
  }
}

void PendingLayers::shrink_to(const KvStore& store) {
  for (auto& [row, layers] : rows_) {
    layers.resize(static_cast<size_t>(store.pending(row)));
  }
}

}  // namespace specdec
