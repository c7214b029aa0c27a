#pragma once
#include <cstdint>

namespace specdec {

/// What a chunk, or all chunks so far, contribute to one row: a query head of a node.
template <class T>
struct RowPart {
  T largest;  ///< score; -infinity = nothing seen, and the rest means nothing
  T total;    ///< sum of exp(score - largest)
  T* mixed;   ///< [head_dim] values, weighted alike
};

/// A row of a tile within a chunk.
template <class T>
struct TileRow {
  const T* query;  ///< [head_dim]
  T* scores;       ///< of the slots from first_slot on; then weights, at their positions' place
  RowPart<T>* part;
};

/// What one node of a tile sees of a chunk.
struct SeenKeys {
  int64_t begin, end;   ///< positions; never empty
  const int32_t* path;  ///< slots of its pending ancestors, the first at position `length`, or
                        ///< nullptr: slot = position
  const float* bias;    ///< [bias_columns] or nullptr
};

/// Neighbouring nodes of one row of the batch, a chunk and a kv head. Pages hold elements of type
/// Kv: T, or beside float32 those of another format (core/kernels/kv_format.h).
template <class T, class Kv>
struct ChunkTask {
  const SeenKeys* seen;    ///< [nodes]
  const TileRow<T>* rows;  ///< [nodes * group]
  int64_t nodes, group;
  const Kv *keys, *values;            ///< of the kv head in page 0
  const float* key_levels = nullptr;  ///< [kQ3Levels] of that head, of kQ3
  const float* value_levels = nullptr;
  const int32_t* page_table;  ///< of the row of the batch
  int64_t page_size, page_stride, head_dim;
  int64_t width;                 ///< elements of a key or value
  int64_t length;                ///< kept tokens
  int64_t first_slot, end_slot;  ///< all that any node sees
  int64_t bias_columns;
  T scale, soft_cap;

  int64_t page(int64_t slot) const { return page_table[slot / page_size] * page_stride; }
  int64_t slot(const SeenKeys& node, int64_t position) const {
    return node.path == nullptr || position < length ? position : node.path[position - length];
  }
};

/// Numbers in the widest vector.
constexpr int64_t kWidest = 16;

}  // namespace specdec
