#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/draft.h"
#include "core/forward.h"

namespace specdec {

/// Map from the nodes of a draft in progress to the pending nodes of a model that stand for them.
class PendingNodes {
 public:
  /// A new draft; `root`: the pending node that its root is, -1 = the last kept token.
  void begin(int64_t root) { pending_ = {root}; }
  /// The nodes of the frontier, whose parents were evaluated before, as a batch for a model that
  /// has `pending` pending nodes. Their tokens: `tokens`, [k] int32 on a device, or where this is
  /// undefined those of the draft.
  TokenBatch batch(const Draft& partial, std::span<const int64_t> frontier, int64_t pending,
                   const Tensor& tokens = {});

 private:
  std::vector<int64_t> pending_ = {-1};  // of each node of the draft; not read where not evaluated
};

}  // namespace specdec
