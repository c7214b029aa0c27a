#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace specdec {

using at::Tensor;

/// How keys and values lie in the pages. Quantised formats come with scales.
enum class KvFormat { kNative };

/// Which of a forward's new nodes sees what: the same for all layers of a forward. int32 tensors on
/// the model's device, kept between forwards: they are as large as the largest forward so far
/// needed
/// (*_capacity), and only the first `nodes` nodes and `words` words mean anything. Contiguous.
struct BatchTables {
  int64_t nodes = 0;  ///< new nodes, n
  int64_t words = 0;  ///< words of a node's ancestor bits that may be set in this forward
  Tensor rows;        ///< [node_capacity] row of each node
  Tensor slots;       ///< [node_capacity] where its key and value go: kept length + node index
  Tensor positions;   ///< [node_capacity] kept length + depth among pending nodes
  Tensor ancestors;   ///< [node_capacity, word_capacity] bit j of the words = pending node j of
                      ///< the row is an ancestor, or the node itself; 32 bits a word, low first
  Tensor lengths;     ///< [row_capacity] kept tokens
  Tensor pending_positions;  ///< [row_capacity, pending_capacity] position of each pending node
  Tensor page_table;         ///< [row_capacity, page_capacity] page of slot s at s / page_size
};

/// What an attention kernel reads of one layer's cache: pages, and the forward's tables. A key at
/// slot s of a row lies at pages[page_table[row][s / page_size]][head][s % page_size]. Slots below
/// lengths[row] hold kept tokens (slot = position), later ones pending nodes.
struct KvView {
  Tensor keys;    ///< [pages, kv_heads, page_size, head_dim]
  Tensor values;  ///< [pages, kv_heads, page_size, head_dim]
  KvFormat format = KvFormat::kNative;
  Tensor scales;       ///< undefined for kNative
  int64_t window = 0;  ///< a key at position p is seen from q when q - p < window; 0 = always
  const BatchTables* tables = nullptr;  ///< owned by the cache; valid until its next change
};

}  // namespace specdec
