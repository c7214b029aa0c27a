#pragma once
#include <vector>

#include "decoders/shapes/draft_growth.h"

namespace specdec {

struct DynamicTreeOptions {
  int64_t nodes = 24;  ///< verified, beside the root
  int64_t depth = 6;
  int64_t top_k = 4;  ///< nodes of a level that are expanded, and children that each gets
};

/// EAGLE-2's tree (Li et al., 2024, arXiv:2406.16858, section 4): every level expands its `top_k`
/// most likely nodes by the product of the drafter's probabilities along the path; of all nodes the
/// `nodes` most likely are verified. Nodes that cannot be among them are not expanded.
///
/// It leaves siblings out after they were found, so they have to be the best ones, not drawn.
class DynamicTreeShape final : public DraftShape {
 public:
  /// Throws ConfigError for options below 1.
  explicit DynamicTreeShape(const DynamicTreeOptions& options = {});
  DraftLimits next(int64_t context) override;
  Draft grow(const DraftContext& context, ChildDistribution& distribution,
             Siblings siblings) override;
  bool branches() const override { return options_.top_k > 1; }
  bool allows_drawn() const override { return false; }

 private:
  DynamicTreeOptions options_;
};

}  // namespace specdec
