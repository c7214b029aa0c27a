#include "decoders/shapes/chain.h"

#include <utility>

#include "decoders/shapes/draft_growth.h"

namespace specdec {

ChainShape::ChainShape(std::unique_ptr<DraftLength> length) : length_(std::move(length)) {}

ChainShape::ChainShape(int64_t length) : length_(std::make_unique<FixedDraftLength>(length)) {}

void ChainShape::reset() { length_->reset(); }

DraftLimits ChainShape::next(int64_t context) {
  const int64_t length = length_->next(context);
  return {.tokens = length, .depth = length, .branches = 1};
}

Draft ChainShape::grow(const DraftContext& context, ChildDistribution& distribution,
                       Siblings siblings) {
  DraftGrowth growth(context, distribution, siblings);
  std::vector<int64_t> newest = {0};
  while (!newest.empty()) {
    growth.expand(newest);
    newest = growth.add_children(newest.front(), 1);
  }
  return std::move(growth).finish();
}

void ChainShape::observe(const Draft& draft, const VerifyResult& result) {
  length_->observe(draft.proposed(), static_cast<int64_t>(result.path.size()) - 1);
}

}  // namespace specdec
