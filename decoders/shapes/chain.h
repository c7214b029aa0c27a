#pragma once
#include <cstdint>

#include "decoders/draft_shape.h"

namespace specdec {

/// A chain, one token after the other: what a policy of the draft's length subclasses.
class ChainShape : public DraftShape {
 public:
  DraftLimits next(int64_t context) final;
  Draft grow(const DraftContext& context, ChildDistribution& distribution, Siblings siblings) final;
  void observe(const Draft& draft, const VerifyResult& result) final;
  bool branches() const final { return false; }

  /// Tokens to draft after `context` committed ones; 0 = a plain step.
  virtual int64_t length(int64_t context) = 0;
  /// What came of the step: proposed tokens (fewer than asked when they did not fit or the drafter
  /// had no more to say) and how many were accepted.
  virtual void learn(int64_t drafted, int64_t accepted) {
    (void)drafted;
    (void)accepted;
  }
};

}  // namespace specdec
