#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "core/kernels/kv_view.h"
#include "core/kernels/ops.h"

namespace specdec {

/// Numbers that say all that the launches of a forward depend on: sizes, and the addresses of
/// memory that may lie elsewhere in the next one. Forwards of the same key launch the same kernels
/// on the same memory; what that holds (tokens, positions, page tables, lengths) may differ.
using GraphKey = std::vector<int64_t>;

/// Adds where a tensor lies; 0 for an undefined one.
void add_address(const Tensor& tensor, GraphKey& key);
/// Adds where a forward's tables lie, and how.
void add_tables(const BatchTables& tables, GraphKey& key);
/// Adds where a recurrent layer's states and those of a forward's nodes lie.
void add_states(const NodeStates& states, GraphKey& key);
/// Adds where a layer's keys and values lie, and the means of old ones, and how.
void add_pages(const KvView& view, GraphKey& key);
/// Positions that attention is launched for where rows are shorter than `longest`: the power of two
/// from there, at least 128.
int64_t launched_context(int64_t longest);

/// What became of the forwards that were given to ForwardGraphs.
struct GraphCounts {
  /// Ran as they are: the first of their key; of drafts that LanguageModel::draw_chain and
  /// draw_tree, or ModuleDrafts, draw the second.
  int64_t warm_ups = 0;
  int64_t captures = 0;  ///< were recorded, and ran as a graph
  int64_t replays = 0;   ///< ran as a graph that was there

  bool operator==(const GraphCounts&) const = default;
  GraphCounts operator+(const GraphCounts& other) const {
    return {warm_ups + other.warm_ups, captures + other.captures, replays + other.replays};
  }
};

/// Graphs of a model's forwards, for as many keys as fit: the one that was not used for longest
/// goes first. Borrows the ops.
class ForwardGraphs {
 public:
  /// `most`: keys; 0 = records nothing.
  ForwardGraphs(Ops& ops, int64_t most) : ops_(ops), most_(most) {}

  /// Whether run() may be called: graphs are wanted, and the ops record now.
  bool enabled() const { return most_ > 0 && ops_.records(); }
  /// Whether a key is one of those that are kept; if not, it is one from now on.
  bool knows(const GraphKey& key);
  /// Does what `calls` does, which calls ops only, and those that `key` says: runs it the first
  /// time, records it the second time, and runs the graph from then on. Throws what `calls` throws,
  /// and Error where the device fails.
  void run(const GraphKey& key, const std::function<void()>& calls);
  const GraphCounts& counts() const { return counts_; }

 private:
  struct Entry {
    GraphKey key;
    bool has_run = false;
    std::unique_ptr<OpsGraph> graph = nullptr;  ///< nullptr before the second forward
  };
  /// The entry of a key, which becomes the first of entries_; nullptr where there is none.
  Entry* find(const GraphKey& key);
  Entry& add(const GraphKey& key);

  Ops& ops_;
  int64_t most_;
  std::list<Entry> entries_;  ///< the newest first
  GraphCounts counts_;
};

}  // namespace specdec
