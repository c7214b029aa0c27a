#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/kernels/kv_view.h"
#include "core/kv_snapshot.h"
#include "core/kv_tiers.h"
#include "core/types.h"

namespace specdec {

class Ops;
class RowTiers;
struct KvTrace;

/// Geometry of one layer's keys and values, or size of its states.
struct LayerKv {
  int64_t kv_heads = 1;
  int64_t head_dim = 0;
  int64_t window = 0;         ///< 0 = sees everything
  int64_t source_layer = -1;  ///< an earlier layer whose keys and values it reads; -1 = its own
  int64_t sink = 0;           ///< first positions that are seen beside those of a window
  /// Numbers of a recurrent layer's state after a token, which it has instead of keys and values; 0
  /// = it has keys and values.
  int64_t state_size = 0;
  /// What codes of kQ3 mean: [2, kv_heads, kQ3Levels] float32, contiguous on the host, of the keys
  /// and then the values of each head. Undefined: kNormalLevels.
  Tensor levels = {};
};

struct KvStoreOptions {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  int64_t max_length = 0;  ///< most tokens of a row, kept and pending together
};

/// New nodes that an extend makes room for: numbered as those of a TokenBatch. Borrows.
struct NewNodes {
  int64_t count = 0;
  std::span<const RowId> rows = {};       ///< [count]; see TokenBatch
  std::span<const int64_t> parents = {};  ///< [count]; see TokenBatch
  TokenSpan tokens = {};                  ///< [count] for BatchTables::tokens; empty = none
};

/// How the memory of a store is used. A page holds `page_size` tokens, in every layer of a group;
/// rows and snapshots may share it. Pages, tokens and slots are summed over the groups: one, or
/// with window_slack (KvCacheOptions) one for each window, and with exact_recent one more.
struct KvStatistics {
  /// Pages of one layer.
  struct Layer {
    int64_t page_bytes = 0;  ///< 0 for a layer that reads another's
    int64_t used_pages = 0;
    int64_t allocated_pages = 0;
  };

  int64_t page_size = 0;
  int64_t used_pages = 0;    ///< that hold a token of a row, or are held by a snapshot
  int64_t shared_pages = 0;  ///< of these, those that several rows or snapshots refer to
  int64_t spare_pages = 0;   ///< of rows, for tokens to come: left by those that were truncated
  int64_t free_pages = 0;    ///< given back, and not yet used again
  /// Pages that take memory: those that were ever used, or all where they are allocated at once.
  int64_t allocated_pages = 0;
  int64_t tokens = 0;  ///< kept and pending tokens of rows; shared ones count once
  int64_t slots = 0;   ///< of the pages that hold them
  std::vector<Layer> layers = {};
  std::vector<Layer> exact_layers = {};  ///< their ExactPages; empty where there are none
  std::optional<KvTiers> tiers = {};     ///< none where all pages lie in memory
  /// States of recurrent layers: of rows' last kept tokens, pending nodes and checkpoints; one that
  /// several rows share counts once.
  int64_t states = 0;
  /// States that take memory: as many as were ever used at a time, or all where they are allocated
  /// at once.
  int64_t allocated_states = 0;
  int64_t state_bytes = 0;  ///< of one, all recurrent layers together

  int64_t used_bytes() const { return bytes(&Layer::used_pages, states); }
  int64_t allocated_bytes() const { return bytes(&Layer::allocated_pages, allocated_states); }
  /// Share of the slots in the pages of rows that hold nothing.
  double fragmentation() const {
    return slots == 0 ? 0.0 : static_cast<double>(slots - tokens) / static_cast<double>(slots);
  }

 private:
  int64_t bytes(int64_t Layer::*pages, int64_t number_of_states) const {
    int64_t bytes = number_of_states * state_bytes;
    for (const std::vector<Layer>* form : {&layers, &exact_layers}) {
      for (const Layer& layer : *form) {
        bytes += layer.page_bytes * layer.*pages;
      }
    }
    return bytes;
  }
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

  /// Begins a forward: checks the nodes (throws InternalError for a parent that does not exist or a
  /// row that is not open, Error when a row would exceed max_length), reserves their slots and
  /// builds the tables. The nodes are pending afterwards. Changes nothing when it throws.
  virtual void extend(const NewNodes& nodes) = 0;
  /// Forgets the nodes of the newest extend, as if it had not been: for a forward that fails. Only
  /// between that extend and the next call that changes the store.
  virtual void undo_extend() = 0;
  /// What attention and the writer of keys and values need of a layer, which are about to run:
  /// pages that lie on disk are read.
  virtual KvView view(int64_t layer) const = 0;
  /// The view of a layer for callers that read format, geometry, window, tables or addresses alone:
  /// nothing is read from disk or counted as read, so what the pages hold means nothing.
  virtual KvView describe(int64_t layer) const { return view(layer); }
  /// Whether all that these layers read and write of the newest extend's rows lies in memory at
  /// once; makes room for pages that are new. Then describe() is what their ops run with, and
  /// nothing moves or goes up until the store is changed or view() is called: a graph may hold
  /// them. False where a page has left memory, which view() brings beside what is computed, or
  /// where there is no room; then no page has left or come. Throws Error where a disk fails.
  virtual bool make_resident(std::span<const int64_t> /*layers*/) { return true; }

  /// Keeps the pending nodes on `path` (a path from the root: each node's parent is the one before
  /// it); forgets the row's other nodes.
  virtual void commit(RowId row, std::span<const int64_t> path) = 0;
  /// See LanguageModel::truncate and rewindable_to.
  virtual void truncate(RowId row, int64_t length) = 0;
  virtual int64_t rewindable_to(RowId row, int64_t length) const {
    (void)row;
    return length;
  }
  /// See LanguageModel::open, fork and close.
  virtual RowId open() = 0;
  virtual RowId fork(RowId row, int64_t length) = 0;
  virtual void close(RowId row) = 0;

  /// See KvSnapshots::kv_snapshot.
  virtual std::shared_ptr<const KvSnapshot> snapshot(RowId row) = 0;
  /// See KvSnapshots::kv_restore. Not between an extend and its undo.
  virtual void restore(RowId row, const KvSnapshot& snapshot, int64_t length) = 0;
  /// Numbers of new tokens in a layer with keys and values of its own: each [kv_heads, count,
  /// head_dim], of the activations' dtype, in the host's memory.
  using NumbersOfLayer = std::function<std::pair<Tensor, Tensor>(int64_t layer)>;
  /// The row keeps `count` more tokens, of these numbers, which are asked for layer after layer. It
  /// has no pending nodes. Throws as extend does; changes nothing then.
  virtual void append(RowId row, int64_t count, const NumbersOfLayer& numbers) = 0;

  virtual std::vector<RowId> rows() const = 0;  ///< open ones, ascending
  virtual int64_t length(RowId row) const = 0;
  virtual int64_t pending(RowId row) const = 0;
  virtual int64_t max_length() const = 0;
  /// Counted when it is asked for.
  virtual KvStatistics statistics() const = 0;
  /// Makes the memory of `tokens` tokens resident, as far as the capacity goes: the system gives it
  /// when it is first written, which a measured forward should not wait for.
  virtual void touch(int64_t tokens) { (void)tokens; }
  /// Tables of `nodes` nodes that only read a row's kept tokens, for layers without keys and values
  /// of their own (the Gemma 4 assistant): each sees what the row's last kept token sees, within a
  /// view's window, and is rotated by position `angle`, which may lie beyond it. With them in place
  /// of view(layer).tables an attention reads the pages themselves; nothing is pending and nothing
  /// may be written. They hold until the next call of readers() or the row's next change. Throws
  /// InternalError for an empty row.
  virtual BatchTables readers(RowId row, int64_t nodes, int64_t angle) const = 0;
  /// Copies of a layer's kept keys and values, as the row's last token reads them: each [kv_heads,
  /// tokens, head_dim], of all or some; NaN where the store has given a token back that no node
  /// sees any more. Numbers that are widened lie in the host's memory, others on the device.
  virtual std::pair<Tensor, Tensor> key_values(int64_t layer, RowId row,
                                               TokenRange tokens = {}) const = 0;

  /// What runs the forwards over this store: `ops`, or others that call them and note what they
  /// read and write. Called once, by the model that owns the store. The store may run ops of its
  /// own with them, so they live as long as it.
  virtual std::shared_ptr<Ops> observed(std::shared_ptr<Ops> ops) { return ops; }
  /// What was written and read since the store was made; nullptr where nothing is traced.
  virtual const KvTrace* trace() const { return nullptr; }
  /// Where the pages of rows lie, and moves of them, which change nothing that the store holds;
  /// nullptr where all lie in memory. It lives as long as the store.
  virtual RowTiers* row_tiers() const { return nullptr; }
};

/// Makes the store of a model.
using KvStoreFactory =
    std::function<std::unique_ptr<KvStore>(std::vector<LayerKv>, const KvStoreOptions&)>;

}  // namespace specdec
