#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <span>
#include <vector>

#include "core/kernels/recurrence.h"
#include "core/kv_store.h"
#include "kv/mirrored_ints.h"
#include "kv/page_capacity.h"
#include "kv/state_pool.h"

namespace specdec {

/// States of recurrent layers, for the rows of a cache and trees of pending nodes: the lifecycle of
/// a KvStore without pages, under the rows' names. A state holds the numbers of all layers after
/// one token and never changes once a forward has written it, so rows, forks and checkpoints share
/// it: it is kept, handed on and forgotten by its number, and no call but a forward's ops reads or
/// writes what it holds. Each node starts from its parent's, the first nodes from that of the row's
/// last kept token.
///
/// Of kept tokens the last one's state is there, and those of checkpoints: at lengths that are a
/// multiple of StateOptions::every, the newest of them. A row can be truncated to these lengths and
/// to 0.
class StateStore {
 public:
  /// `numbers`: of a state, of the activations' dtype.
  StateStore(int64_t numbers, const KvCacheOptions& options);

  /// Takes states for new nodes, which are pending afterwards; `nodes` are those of a KvStore that
  /// has checked them. Throws Error where there would be more states than the options allow;
  /// changes nothing then.
  void extend(const NewNodes& nodes);
  void undo_extend();
  /// States of the nodes of the newest extend.
  const NodeStates& nodes() const { return nodes_; }

  /// Keeps the nodes on a path that the KvStore has checked.
  void commit(RowId row, std::span<const int64_t> path);
  /// The largest length, at most `length`, that the row can be truncated to or forked at.
  int64_t rewindable_to(RowId row, int64_t length) const;
  /// Throws Error where the row is not rewindable to the length.
  void check_rewindable(RowId row, int64_t length) const { (void)state_at(row_of(row), length); }
  /// Changes rows. truncate and fork throw as check_rewindable does, and change nothing then.
  void truncate(RowId row, int64_t length);
  void open(RowId row);
  void fork(RowId row, RowId branch, int64_t length);
  void close(RowId row);

  /// States that are in use; one that several refer to counts once.
  int64_t count() const { return pool_.used(); }
  /// States that take memory.
  int64_t allocated() const { return pool_.allocated(); }
  int64_t state_bytes() const { return state_bytes_; }

 private:
  struct Checkpoint {
    int64_t length;
    HeldState state;
  };
  struct Row {
    int64_t length = 0;
    HeldState last = {};  ///< none for no tokens
    std::vector<Checkpoint> checkpoints = {};
    std::vector<HeldState> pending = {};
  };
  struct Span {
    RowId row;
    int64_t nodes;
  };

  const Row& row_of(RowId row) const { return rows_.at(row); }
  void check_room(int64_t nodes) const;
  void reserve(int64_t nodes);
  /// The largest length, at most `length`, that a row has a checkpoint of; 0 = none.
  static int64_t newest_checkpoint(const Row& row, int64_t length);
  /// The state after so many tokens; none for none. Throws Error where the row is not
  /// rewindable to it.
  HeldState state_at(const Row& row, int64_t length) const;
  static void cut(Row& row, int64_t length);

  int64_t state_bytes_;
  StateOptions options_;
  StatePool pool_;  ///< before what holds its states
  MirroredInts table_;
  std::map<RowId, Row> rows_;
  std::vector<Span> spans_;  ///< of the newest extend
  NodeStates nodes_;
};

}  // namespace specdec
