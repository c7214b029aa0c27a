#pragma once
#include "decoders/drafter.h"

namespace specdec {

/// A drafter whose drafts have the size that the context's shape plans: the shape is asked how much
/// the step may draft, and the drafter for that much, within what fits. Checks what it proposes,
/// and takes out what the grammar forbids.
class ShapedDrafter final : public Drafter {
 public:
  /// Borrows the drafter.
  explicit ShapedDrafter(Drafter& drafter) : drafter_(drafter) {}
  Needs needs() const override { return drafter_.needs(); }
  void skip(const DraftContext& context) override { drafter_.skip(context); }
  /// The context's limits are what fits.
  Draft propose(const DraftContext& context) override;

 private:
  Drafter& drafter_;
};

}  // namespace specdec
