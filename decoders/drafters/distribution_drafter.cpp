#include "decoders/drafters/distribution_drafter.h"

#include <algorithm>

namespace specdec {

Draft DistributionDrafter::propose(const DraftContext& context) {
  read_backs_ = context.read_backs;
  const std::optional<DraftRoom> room = begin_draft(context);
  if (!room) {
    return Draft::root(context.committed.back());
  }
  DraftContext own = context;
  own.max_depth = std::min(context.max_depth, room->depth);
  own.max_evaluated = std::min(context.max_evaluated, room->evaluated);
  const bool draws = sample_.value_or(context.shape.allows_drawn());
  Draft draft = context.shape.grow(own, *this, draws ? Siblings::kDrawn : Siblings::kBest);
  end_draft();
  return draft;
}

ForwardResult DistributionDrafter::counted(ForwardResult result) const {
  if (read_backs_ != nullptr) {
    *read_backs_ += result.read_backs;
  }
  return result;
}

}  // namespace specdec
