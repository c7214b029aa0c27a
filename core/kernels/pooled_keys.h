#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

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
    const int64_t old = position - recent + 1 - sink;
    return old > 0 ? old / chunk : 0;
  }
  /// First position behind the sink that it sees itself.
  int64_t first_at(int64_t position) const {
    const int64_t means = means_at(position);
    return means > 0 ? sink + means * chunk : 0;
  }
  /// Chunks that lie among the first `tokens` tokens.
  int64_t chunks_in(int64_t tokens) const { return tokens > sink ? (tokens - sink) / chunk : 0; }
};

/// Means of the keys and values of one layer, in the activations' dtype, for rows by their names.
/// They are of the numbers that the pages hold, after rotary embedding, rotation and rounding: a
/// score is linear in its key, so a mean of rotated keys has the mean of its chunk's scores, for
/// every query. Made when an attention first needs them, from pages that have all tokens still, so
/// whoever shortens a row says so. Of one thread.
class PooledKeys {
 public:
  explicit PooledKeys(const Pooling& pooling) : pooling_(pooling) {}

  struct Row {
    at::Tensor keys;    ///< [kv_heads, head_dim, capacity], a multiple of 16, zeros behind `count`
    at::Tensor values;  ///< [kv_heads, capacity, head_dim]
    int64_t count = 0;  ///< means
  };

  const Pooling& pooling() const { return pooling_; }
  /// Names of the rows that the tables of the next attentions mean, by their places.
  void set_places(std::span<const int64_t> names) { places_.assign(names.begin(), names.end()); }
  /// Forgets means of other tokens than the row's first `tokens`.
  void keep(int64_t row, int64_t tokens);
  /// Gives a new row the means of another one's first `tokens` tokens.
  void fork(int64_t from, int64_t to, int64_t tokens);
  void close(int64_t row) { rows_.erase(row); }

  /// Makes the means that the nodes of view.tables see and that are missing, of a layer's pages on
  /// the CPU.
  void update(const KvView& view);
  /// That of a place in the tables, for the nodes without means of their own.
  const Row& at(int64_t place) const { return rows_.at(places_[static_cast<size_t>(place)]); }
  /// Means of a node's own: one of a tree that sees means of its pending ancestors, which lie at
  /// other slots than those of their positions. nullptr for others.
  const Row* own(int64_t node) const {
    const int64_t index = own_of_node_[static_cast<size_t>(node)];
    return index < 0 ? nullptr : &own_[static_cast<size_t>(index)];
  }

 private:
  /// What a node sees: its place, the kept tokens of its row, and the slots of those behind them,
  /// nullptr where these are their positions.
  struct Sight {
    int64_t place, length;
    const int32_t* path;
  };
  static Sight sight_of(int64_t node, const BatchTables& tables);
  void extend(Row& row, int64_t means, const Sight& sight, const KvView& view);
  void reserve(Row& row, int64_t means, const KvView& view) const;
  void pool(Row& row, const Sight& sight, const KvView& view);

  Pooling pooling_;
  std::map<int64_t, Row> rows_;
  std::vector<int64_t> places_;
  std::vector<Row> own_;              // of nodes of the newest update
  std::vector<int64_t> own_of_node_;  // its index there, or -1; kept to allocate nothing
  std::vector<float> floats_;         // likewise, of a head
  std::vector<double> numbers_, sums_;
};

}  // namespace specdec
