#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/kernels/device/cache_address.h"
#include "core/kernels/kv_view.h"

namespace specdec {

/// What a token sees in place of old keys and values: means of chunks.
struct Pooling {
  int64_t chunk = 0;   ///< tokens of a mean
  int64_t recent = 0;  ///< last tokens that a token sees themselves, itself among them
  int64_t sink = 0;    ///< first tokens that every token sees themselves

  /// Chunks whose means the token at `position` sees: those behind the sink that end before its
  /// recent tokens begin.
  int64_t means_at(int64_t position) const {
    return device::means_at(position, chunk, recent, sink);
  }
  /// First position behind the sink that it sees itself.
  int64_t first_at(int64_t position) const {
    const int64_t means = means_at(position);
    return means > 0 ? sink + means * chunk : 0;
  }
  /// Chunks that lie among the first `tokens` tokens.
  int64_t chunks_in(int64_t tokens) const { return device::chunks_in(tokens, chunk, sink); }
};

/// Means of the keys and values of one layer, in the activations' dtype, where the pages lie. They
/// are of the numbers that the pages hold, after rotary embedding, rotation and rounding: a score
/// is linear in its key, so a mean of rotated keys has the mean of its chunk's scores, for every
/// query. Made when an attention first needs them, from pages that have all tokens still, so
/// whoever shortens a row says so. Of one thread.
///
/// A row's means lie in columns, chunk by chunk. A node of a tree that sees means of its pending
/// ancestors, which lie at other slots than those of their positions, has columns of its own
/// for them, from own_column() on, behind those of the chunks among the row's kept tokens.
class PooledKeys {
 public:
  explicit PooledKeys(const Pooling& pooling) : pooling_(pooling) {}

  /// What a forward needs.
  struct Sizes {
    int64_t rows = 0;   ///< places of rows in the tables
    int64_t means = 0;  ///< of the row that has most
    int64_t nodes = 0;
    int64_t own = 0;  ///< means of its own of the node that has most
  };

  const Pooling& pooling() const { return pooling_; }
  /// Makes room for a layer that `view` describes. What was made stays; it may lie elsewhere.
  void reserve(const KvView& view, const Sizes& sizes);
  /// Forgets all but the first `means` means of a row, by its place in the tables.
  void keep(int64_t place, int64_t means);
  /// Gives a row the first `means` means of another one, as far as they are made.
  void fork(int64_t from, int64_t to, int64_t means);
  /// Makes the means that the nodes of view.tables see and that are missing, of a layer's pages on
  /// the CPU.
  void update(const KvView& view);
  /// Throws Error for a defined bias, which is of single tokens.
  static void check_bias(const Tensor& bias);

  /// [rows, kv_heads, head_dim, columns], a multiple of 16 columns, finite where nothing was made;
  /// undefined before any room was made.
  const Tensor& keys() const { return keys_; }
  const Tensor& values() const { return values_; }  ///< [rows, kv_heads, columns, head_dim]
  /// int32 [rows, 2 * kv_heads] means that are made of a row: of each head's keys, then values.
  const Tensor& made() const { return made_; }
  int64_t columns() const { return keys_.defined() ? keys_.size(3) : 0; }
  /// First column of the means that node `node` of a forward has of its own.
  int64_t own_column(int64_t node) const { return room_.means + node * room_.own; }
  int64_t own_columns() const { return room_.own; }  ///< of a node

 private:
  struct Mean {
    int64_t place, chunk, column;
    int64_t length;       ///< kept tokens of the row
    const int32_t* path;  ///< slots of the tokens behind them; nullptr = those of their positions
  };
  void pool(const Mean& mean, const KvView& view);

  Pooling pooling_;
  Sizes room_;
  Tensor keys_, values_, made_;
  std::vector<float> floats_;  // of a head; kept to allocate nothing
  std::vector<double> numbers_, sums_;
};

}  // namespace specdec
