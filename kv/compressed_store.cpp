#include "kv/compressed_store.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {

CompressedStore::CompressedStore(std::unique_ptr<KvStore> store, const std::vector<LayerKv>& layers,
                                 const Pooling& pooling)
    : ForwardingStore(std::move(store)),
      pooling_(pooling),
      means_(layers.size()),
      means_of_layer_(layers.size()) {
  SPECDEC_CHECK(pooling.chunk > 0 && pooling.recent > 0 && pooling.sink >= 0,
                "compressed: chunk {}, recent {}, sink {}", pooling.chunk, pooling.recent,
                pooling.sink);
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (layers[layer].window > 0 || layers[layer].state_size > 0) {
      continue;
    }
    const int64_t source = layers[layer].source_layer;
    std::unique_ptr<PooledKeys>& means = means_[source < 0 ? layer : static_cast<size_t>(source)];
    if (!means) {
      means = std::make_unique<PooledKeys>(pooling);
    }
    means_of_layer_[layer] = means.get();
  }
}

void CompressedStore::extend(const NewNodes& nodes) {
  extended_.clear();
  ForwardingStore::extend(nodes);
  const auto* places = ForwardingStore::describe(0).tables->rows.const_data_ptr<int32_t>();
  for (int64_t node = 0; node < nodes.count; ++node) {
    const RowId row = nodes.rows.empty() ? 0 : nodes.rows[static_cast<size_t>(node)];
    if (!extended_.empty() && extended_.back() == row) {
      continue;
    }
    extended_.push_back(row);
    const auto place = static_cast<size_t>(places[node]);
    places_.resize(std::max(places_.size(), place + 1));
    places_[place] = row;
  }
  for (const auto& means : means_) {
    if (means) {
      means->set_places(places_);
    }
  }
}

void CompressedStore::undo_extend() {
  ForwardingStore::undo_extend();
  for (const RowId row : extended_) {
    keep(row, length(row) + pending(row));
  }
  extended_.clear();
}

void CompressedStore::commit(RowId row, std::span<const int64_t> path) {
  const int64_t before = length(row);
  const bool in_place =
      std::adjacent_find(path.begin(), path.end(),
                         [](int64_t a, int64_t b) { return b != a + 1; }) == path.end() &&
      (path.empty() || path.front() == 0);
  ForwardingStore::commit(row, path);
  keep(row, in_place ? length(row) : before);
}

void CompressedStore::truncate(RowId row, int64_t length) {
  ForwardingStore::truncate(row, length);
  keep(row, length);
}

RowId CompressedStore::fork(RowId row, int64_t length) {
  const RowId branch = ForwardingStore::fork(row, length);
  for (const auto& means : means_) {
    if (means) {
      means->fork(row, branch, length);
    }
  }
  return branch;
}

void CompressedStore::close(RowId row) {
  ForwardingStore::close(row);
  for (const auto& means : means_) {
    if (means) {
      means->close(row);
    }
  }
}

void CompressedStore::restore(RowId row, const KvSnapshot& snapshot, int64_t length) {
  keep(row, 0);
  ForwardingStore::restore(row, snapshot, length);
}

KvView CompressedStore::view(int64_t layer) const {
  return with_means(layer, ForwardingStore::view(layer));
}

KvView CompressedStore::describe(int64_t layer) const {
  return with_means(layer, ForwardingStore::describe(layer));
}

KvView CompressedStore::with_means(int64_t layer, KvView view) const {
  if (PooledKeys* means = means_of_layer_[static_cast<size_t>(layer)]) {
    view.pooled = means;
    view.sink = pooling_.sink;
  }
  return view;
}

/// Forgets what is not of the row's first tokens.
void CompressedStore::keep(RowId row, int64_t tokens) {
  for (const auto& means : means_) {
    if (means) {
      means->keep(row, tokens);
    }
  }
}

}  // namespace specdec
