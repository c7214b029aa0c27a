#pragma once
#include <utility>
#include <vector>

#include "decoders/draft_shape.h"
#include "decoders/shapes/draft_growth.h"

namespace specdec {

/// A comb: every node of a chain has `width` children, and the first of them continues the chain.
class CombTree final : public DraftShape {
 public:
  CombTree(int64_t depth, int64_t width) : depth_(depth), width_(width) {}
  bool branches() const override { return width_ > 1; }
  DraftLimits next(int64_t /*context*/) override {
    return {.tokens = depth_ * width_, .depth = depth_, .branches = width_};
  }
  Draft grow(const DraftContext& context, ChildDistribution& distribution,
             Siblings siblings) override {
    DraftGrowth growth(context, distribution, siblings);
    std::vector<int64_t> children = {0};  // the root is the first end of the chain
    while (!children.empty()) {
      const int64_t node = children.front();
      growth.expand({&node, 1});
      children = growth.add_children(node, width_);
    }
    return std::move(growth).finish();
  }

 private:
  int64_t depth_;
  int64_t width_;
};

}  // namespace specdec
