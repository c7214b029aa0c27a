#pragma once
#include "decoders/shapes/rank_tree.h"

namespace specdec {

/// Drafts the same tree at every step: Medusa's static trees, Sequoia's optimal ones.
class StaticTreeShape final : public DraftShape {
 public:
  /// Throws ConfigError for a tree of the root alone.
  explicit StaticTreeShape(RankTree tree);
  DraftLimits next(int64_t context) override;
  Draft grow(const DraftContext& context, ChildDistribution& distribution,
             Siblings siblings) override;
  bool branches() const override { return limits_.branches > 1; }

 private:
  RankTree tree_;
  DraftLimits limits_;
};

}  // namespace specdec
