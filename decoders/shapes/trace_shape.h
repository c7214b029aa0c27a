#pragma once
#include <span>
#include <utility>
#include <vector>

#include "core/types.h"
#include "decoders/draft_shape.h"
#include "decoders/draft_trace.h"

namespace specdec {

class DraftGrowth;

/// Drafts along a given text instead of by its own choice, and records the drafter's distributions
/// on the way. Used once a trace: for each position follow, a proposal, record.
class TraceShape final : public DraftShape {
 public:
  /// Throws ConfigError when depth or width is below 1.
  explicit TraceShape(const TraceOptions& options);
  /// What comes after the root of the next draft; outlives that draft.
  void follow(TokenSpan text);
  DraftLimits next(int64_t context) override;
  Draft grow(const DraftContext& context, ChildDistribution& distribution,
             Siblings siblings) override;
  bool branches() const override { return false; }
  /// Records a draft; `target`: its distributions after the nodes of the draft. Throws ConfigError
  /// for a draft of more than one token that the drafter drew by itself.
  void record(const Draft& draft, TargetProbs& target);
  DraftTrace finish() && { return std::move(trace_); }

 private:
  struct Seen {                    // at one depth
    TokenProbs distribution = {};  // of a drafter that draws
    Token best = -1;
    int64_t rank = -1;
  };
  /// Looks at the distribution after `node`; true when the draft can go on with the text.
  bool see(DraftGrowth& growth, int64_t node);
  /// Traces the i-th token of the draft; p: the target's distribution there.
  TraceDepth depth_of(const Draft& draft, size_t i, const TokenProbs& p) const;
  TracePosition position_of(const Draft& draft, TargetProbs& target) const;

  TraceOptions options_;
  TokenSpan text_;
  bool grown_ = false;
  bool draws_ = false;
  int64_t drafted_ = 0;
  std::vector<Seen> seen_;
  DraftTrace trace_;
};

}  // namespace specdec
