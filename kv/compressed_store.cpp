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
  const KvFormat format = ForwardingStore::describe(0).format;
  SPECDEC_CHECK(kv_key_group(format) == 1, "compressed: means of keys in {}, rounded in groups",
                kv_format_name(format));
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
  try {
    reserve(sizes_of(nodes));
  } catch (...) {
    undo_extend();
    throw;
  }
}

/// What the means of nodes that are pending already may need.
PooledKeys::Sizes CompressedStore::sizes_of(const NewNodes& nodes) {
  PooledKeys::Sizes sizes{.rows = static_cast<int64_t>(rows_.places()), .nodes = nodes.count};
  const auto row_of = [&nodes](int64_t node) {
    return nodes.rows.empty() ? 0 : nodes.rows[static_cast<size_t>(node)];
  };
  for (int64_t begin = 0, end = 0; begin < nodes.count; begin = end) {
    const RowId name = row_of(begin);
    extended_.push_back(name);
    while (end < nodes.count && row_of(end) == name) {
      ++end;
    }
    Row& row = rows_[name];
    const int64_t first = pending(name) - (end - begin);
    for (int64_t node = begin; node < end && !nodes.parents.empty(); ++node) {
      row.is_chain &= nodes.parents[static_cast<size_t>(node)] == first + node - begin - 1;
    }
    const int64_t means = pooling_.means_at(length(name) + pending(name) - 1);
    row.most_made = std::max(row.most_made, means);
    sizes.means = std::max(sizes.means, means);
    if (!row.is_chain) {
      sizes.own = std::max(sizes.own, means - pooling_.chunks_in(length(name)));
    }
  }
  return sizes;
}

/// Once a row has means, kernels look at the counts of all rows of a batch.
void CompressedStore::reserve(const PooledKeys::Sizes& sizes) {
  for (size_t layer = 0; layer < means_.size(); ++layer) {
    if (means_[layer] && (sizes.means > 0 || means_[layer]->columns() > 0)) {
      means_[layer]->reserve(ForwardingStore::describe(static_cast<int64_t>(layer)), sizes);
    }
  }
}

void CompressedStore::undo_extend() {
  ForwardingStore::undo_extend();
  for (const RowId row : extended_) {
    keep(row, length(row) + pending(row));
    rows_[row].is_chain |= pending(row) == 0;
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
  rows_[row].is_chain = true;
  keep(row, in_place ? length(row) : before);
}

void CompressedStore::truncate(RowId row, int64_t length) {
  ForwardingStore::truncate(row, length);
  rows_[row].is_chain = true;
  keep(row, length);
}

RowId CompressedStore::open() {
  const RowId row = ForwardingStore::open();
  rows_.open();
  return row;
}

RowId CompressedStore::fork(RowId row, int64_t length) {
  const RowId branch = ForwardingStore::fork(row, length);
  rows_.open();
  const int64_t means = std::min(rows_[row].most_made, pooling_.chunks_in(length));
  try {
    reserve({.rows = static_cast<int64_t>(rows_.places()), .means = means});
  } catch (...) {
    close(branch);
    throw;
  }
  rows_[branch].most_made = means;
  for (const auto& layer : means_) {
    if (layer && means > 0) {
      layer->fork(place(row), place(branch), means);
    }
  }
  return branch;
}

void CompressedStore::close(RowId row) {
  keep(row, 0);
  ForwardingStore::close(row);
  rows_.close(row);
}

void CompressedStore::restore(RowId row, const KvSnapshot& snapshot, int64_t length) {
  keep(row, 0);
  ForwardingStore::restore(row, snapshot, length);
  rows_[row].is_chain = true;
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
  const int64_t means = pooling_.chunks_in(tokens);
  if (means >= rows_[row].most_made) {
    return;
  }
  rows_[row].most_made = means;
  for (const auto& layer : means_) {
    if (layer) {
      layer->keep(place(row), means);
    }
  }
}

}  // namespace specdec
