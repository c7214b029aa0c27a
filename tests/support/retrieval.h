#pragma once
#include "decoders/drafter.h"

namespace specdec {

/// Room for a draft, without an opinion on its nodes: for drafters that propose by themselves.
class Room final : public DraftShape {
 public:
  explicit Room(const DraftLimits& limits) : limits_(limits) {}
  DraftLimits next(int64_t context) override;
  /// Throws InternalError: nobody grows a draft in here.
  Draft grow(const DraftContext& context, ChildDistribution& distribution,
             Siblings siblings) override;
  bool branches() const override { return limits_.branches > 1; }

 private:
  DraftLimits limits_;
};

/// What a drafter proposes after `committed`, greedily, within limits.
Draft propose_within(Drafter& drafter, TokenSpan committed, const DraftLimits& limits,
                     const StepResult* last_step = nullptr);

/// The paths of a draft's nodes, as tokens without the root's, in the order of the nodes.
std::vector<std::vector<Token>> paths_of(const Draft& draft);

}  // namespace specdec
