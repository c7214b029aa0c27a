#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/kernels/kv_view.h"
#include "core/kv_snapshot.h"

namespace specdec {

/// Geometry of one layer's keys and values.
struct LayerKv {
  int64_t kv_heads = 1;
  int64_t head_dim = 0;
  int64_t window = 0;         ///< 0 = sees everything
  int64_t source_layer = -1;  ///< an earlier layer whose keys and values it reads; -1 = its own
};

struct KvStoreOptions {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  int64_t max_length = 0;  ///< most tokens of a row, kept and pending together
};

/// New nodes that an extend makes room for: numbered as those of a TokenBatch, without what they
/// hold. Borrows.
struct NewNodes {
  int64_t count = 0;
  std::span<const int64_t> rows = {};     ///< [count], non-decreasing; empty = all row 0
  std::span<const int64_t> parents = {};  ///< [count]; see TokenBatch
};

/// Keys and values of all layers, for several rows of unequal lengths and trees of pending nodes
/// (see LanguageModel for what is kept and what is pending). A model owns one; strategies never see
/// it. Implemented in kv/.
class KvStore {
 public:
  virtual ~KvStore() = default;
  KvStore() = default;
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;

  /// Begins a forward: checks the nodes (throws InternalError for a parent that does not exist or
  /// rows out of order, Error when a row would exceed max_length), reserves their slots and builds
  /// the tables. The nodes are pending afterwards. Changes nothing when it throws.
  virtual void extend(const NewNodes& nodes) = 0;
  /// Forgets the nodes of the newest extend, as if it had not been: for a forward that fails. Only
  /// between that extend and the next call that changes the store.
  virtual void undo_extend() = 0;
  /// What attention and the writer of keys and values need of a layer.
  virtual KvView view(int64_t layer) const = 0;

  /// Keeps the pending nodes on `path` (a path from the root: each node's parent is the one before
  /// it); forgets the row's other nodes.
  virtual void commit(int64_t row, std::span<const int64_t> path) = 0;
  /// Forgets pending nodes and kept tokens from `length` on.
  virtual void truncate(int64_t row, int64_t length) = 0;
  /// Row i continues old row parents[i].
  virtual void reorder(std::span<const int64_t> parents) = 0;

  /// See KvSnapshots::kv_snapshot.
  virtual std::shared_ptr<const KvSnapshot> snapshot(int64_t row) = 0;
  /// See KvSnapshots::kv_restore. Not between an extend and its undo.
  virtual void restore(int64_t row, const KvSnapshot& snapshot, int64_t length) = 0;

  virtual int64_t rows() const = 0;
  virtual int64_t length(int64_t row) const = 0;  ///< 0 for a row that does not exist yet
  virtual int64_t pending(int64_t row) const = 0;
  virtual int64_t max_length() const = 0;
  /// Tables of `nodes` nodes that only read a row's kept tokens, for layers without keys and values
  /// of their own (the Gemma 4 assistant): each sees what the row's last kept token sees, within a
  /// view's window, and is rotated by position `angle`, which may lie beyond it. With them in place
  /// of view(layer).tables an attention reads the pages themselves; nothing is pending and nothing
  /// may be written. They hold until the next call of readers() or the row's next change. Throws
  /// InternalError for an empty row.
  virtual BatchTables readers(int64_t row, int64_t nodes, int64_t angle) const = 0;
  /// Copies of a layer's kept keys and values: each [kv_heads, length(row), head_dim].
  virtual std::pair<Tensor, Tensor> key_values(int64_t layer, int64_t row) const = 0;
};

/// Makes the store of a model.
using KvStoreFactory =
    std::function<std::unique_ptr<KvStore>(std::vector<LayerKv>, const KvStoreOptions&)>;

}  // namespace specdec
