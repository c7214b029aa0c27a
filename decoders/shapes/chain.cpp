#include "decoders/shapes/chain.h"

#include <algorithm>
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
  const int64_t length = std::min(context.max_tokens, context.max_depth);
  for (int64_t node = 0; node < length; ++node) {
    const Tensor logits = growth.expand({&node, 1});
    growth.add_children(node, logits[0], 1);
  }
  return std::move(growth).finish();
}

void ChainShape::observe(const Draft& draft, const VerifyResult& result) {
  length_->observe(draft.proposed(), static_cast<int64_t>(result.path.size()) - 1);
}

}  // namespace specdec
