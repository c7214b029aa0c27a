#pragma once
#include <cstdint>
#include <limits>
#include <optional>

#include "decoders/drafter.h"

namespace specdec {

/// Size of the draft of which a drafter can say the distributions.
struct DraftRoom {
  /// Nodes, beside the root, that it can evaluate: free places of its cache.
  int64_t evaluated = std::numeric_limits<int64_t>::max();
  /// Depth of the deepest node that it can propose.
  int64_t depth = std::numeric_limits<int64_t>::max();
};

/// Base of the drafters that have a distribution: a model, a head, a table. They say what may
/// follow each node (ChildDistribution::expand); the shape decides which nodes the draft has, draws
/// them or takes the best ones, and stays within the room that they state.
class DistributionDrafter : public Drafter, private ChildDistribution {
 public:
  Draft propose(const DraftContext& context) final;
  bool draws() const final { return sample_.value_or(false); }

 protected:
  /// Draws from the distribution when the target is sampled and `sample` is true; if it is false,
  /// takes its best tokens; not given = draws wherever the shape allows it.
  explicit DistributionDrafter(std::optional<bool> sample = {}) : sample_(sample) {}

  /// Counts what a model's forward for the draft in progress has copied to the host.
  ForwardResult counted(ForwardResult result) const;

 private:
  /// A draft begins at context.committed.back(): bring what is cached in line. Returns what there
  /// is room for; nothing = no draft this time.
  virtual std::optional<DraftRoom> begin_draft(const DraftContext& context) = 0;
  /// The draft is grown: nothing more is asked of it.
  virtual void end_draft() {}

  std::optional<bool> sample_;
  ReadBacks* read_backs_ = nullptr;  // of the draft in progress
};

}  // namespace specdec
