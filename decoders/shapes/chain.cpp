#include "decoders/shapes/chain.h"

#include <utility>

#include "decoders/shapes/draft_growth.h"

namespace specdec {

DraftLimits ChainShape::next(int64_t context) {
  const int64_t most = length(context);
  return {.tokens = most, .depth = most, .branches = 1};
}

Draft ChainShape::grow(const DraftContext& context, ChildDistribution& distribution,
                       Siblings siblings) {
  DraftGrowth growth(context, distribution, siblings);
  if (growth.add_drawn_chain()) {
    return std::move(growth).finish();
  }
  std::vector<int64_t> newest = {0};
  while (!newest.empty()) {
    growth.expand(newest);
    newest = growth.add_children(newest.front(), 1);
  }
  return std::move(growth).finish();
}

void ChainShape::observe(const Draft& draft, const VerifyResult& result) {
  learn(draft.proposed(), static_cast<int64_t>(result.path.size()) - 1);
}

}  // namespace specdec
