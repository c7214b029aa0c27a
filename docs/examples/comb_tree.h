#pragma once
#include <algorithm>
#include <utility>

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
    int64_t node = 0;  // the end of the chain: at first the root
    int64_t room = context.max_tokens;
    for (int64_t depth = 0; depth < context.max_depth && room > 0; ++depth) {
      const Tensor logits = growth.expand({&node, 1});
      node = growth.add_children(node, logits[0], std::min(width_, room));
      room = context.max_tokens - growth.draft().proposed();
    }
    return std::move(growth).finish();
  }

 private:
  int64_t depth_;
  int64_t width_;
};

}  // namespace specdec
