#pragma once
#include <memory>

#include "decoders/draft_shape.h"
#include "decoders/shapes/draft_length.h"

namespace specdec {

/// One token after the other, as many as a DraftLength says.
class ChainShape final : public DraftShape {
 public:
  explicit ChainShape(std::unique_ptr<DraftLength> length);
  /// Drafts `length` tokens always.
  explicit ChainShape(int64_t length);
  void reset() override;
  DraftLimits next(int64_t context) override;
  Draft grow(const DraftContext& context, ChildDistribution& distribution,
             Siblings siblings) override;
  void observe(const Draft& draft, const VerifyResult& result) override;
  bool branches() const override { return false; }

 private:
  std::unique_ptr<DraftLength> length_;
};

}  // namespace specdec
