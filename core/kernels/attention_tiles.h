#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/kernels/attention_operands.h"
#include "core/kernels/attention_task.h"

// How a call of attention is cut into tiles of nodes, and these into tasks for threads.

namespace specdec {

/// Nodes and rows of a tile: so many share what is read.
constexpr int64_t kTileNodes = 16;
constexpr int64_t kTileRows = 64;

/// Parts of rows, and the memory that their values lie in. It only grows.
template <class T>
class RowParts {
 public:
  /// `rows` empty parts.
  RowPart<T>* reset(int64_t rows, int64_t head_dim) {
    const int64_t stride = (head_dim + kWidest - 1) / kWidest * kWidest;
    if (static_cast<int64_t>(mixed_.size()) < rows * stride) {
      mixed_.resize(static_cast<size_t>(rows * stride));
    }
    parts_.clear();
    for (int64_t r = 0; r < rows; ++r) {
      parts_.push_back({-std::numeric_limits<T>::infinity(), 0, mixed_.data() + r * stride});
    }
    return parts_.data();
  }

 private:
  std::vector<RowPart<T>> parts_;
  std::vector<T> mixed_;
};

/// A tile and a kv head, all chunks or, where there are too few of these for all threads, one.
template <class T>
struct AttentionTask {
  NodeTile tile;
  int64_t kv_head;
  RowPart<T>* parts;    ///< [rows] where the chunk's parts go; nullptr = all chunks, to the end
  KeyChunk chunk = {};  ///< with parts
};

/// What the tasks of a call are; kept by the calling thread, like Scratch.
template <class T>
struct AttentionTasks {
  std::vector<AttentionTask<T>> tasks;
  RowParts<T> parts;
};

/// Pages are given back from a row's beginning on, so the first one that a node reads tells.
template <class T, class Kv>
void check_held(const Operands<T, Kv>& o, const int32_t* page_table, int64_t node, int64_t begin,
                int64_t end) {
  SPECDEC_CHECK(
      begin >= end || page_table[o.rows[node] * o.table_stride + begin / o.page_size] >= 0,
      "paged_attention: node {} sees position {}, which the cache has given back", node, begin);
}

template <class T, class Kv>
std::vector<NodeTile>& cut_tiles(const Operands<T, Kv>& o) {
  thread_local std::vector<NodeTile> tiles;
  tiles.clear();
  const int64_t most = std::clamp<int64_t>(kTileRows / o.group, 1, kTileNodes);
  for (int64_t node = 0; node < o.nodes; ++node) {
    if (node == 0 || o.rows[node] != o.rows[node - 1] || node - tiles.back().begin == most) {
      tiles.push_back({node, node});
    }
    const int64_t exact = o.first_exact(node);
    check_held(o, o.pages.page_table, node, o.first_seen(node), exact);
    check_held(o, o.exact.page_table, node, exact, o.positions[node] + 1);
    NodeTile& tile = tiles.back();
    tile.end = node + 1;
    tile.pages.include(o.first_seen(node), exact);
    tile.exact.include(exact, o.positions[node] + 1);
    tile.sees_sink = tile.sees_sink || o.sink_end(node) > 0;
    tile.sees_means = tile.sees_means || o.means(node) > 0;
  }
  return tiles;
}

/// Fills list.tasks; `split` = one for each chunk.
template <class T, class Kv>
void cut_tasks(const Operands<T, Kv>& o, const std::vector<NodeTile>& tiles, bool split,
               AttentionTasks<T>& list) {
  list.tasks.clear();
  int64_t rows = 0;
  for (const NodeTile& tile : tiles) {
    rows += (tile.end - tile.begin) * o.heads * tile.chunks();
  }
  RowPart<T>* parts = split ? list.parts.reset(rows, o.head_dim) : nullptr;
  for (size_t i = 0; i < tiles.size(); ++i) {
    // Late tiles of a prefill see most: alternating with early ones, threads get equal shares.
    const NodeTile& tile = tiles[i % 2 == 0 ? i / 2 : tiles.size() - 1 - i / 2];
    for (int64_t kv_head = 0; kv_head < o.kv_heads; ++kv_head) {
      if (!split) {
        list.tasks.push_back({tile, kv_head, nullptr, {}});
        continue;
      }
      tile.for_each_chunk([&](const KeyChunk& chunk) {
        list.tasks.push_back({tile, kv_head, parts, chunk});
        parts += (tile.end - tile.begin) * o.group;
      });
    }
  }
}

}  // namespace specdec
