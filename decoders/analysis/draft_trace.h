#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "core/types.h"
#include "decoders/draft_shape.h"

namespace specdec {

/// A drafter at one depth below a position of a text, given that the draft followed the text so
/// far.
struct TraceDepth {
  /// Place of the text's token among the drafter's most likely, from 0; -1 = not among the first
  /// `width`. A drafter that draws has the exact place.
  int64_t rank = -1;
  double p = 0.0;  ///< of the text's token, by the target's distribution
  double q =
      0.0;  ///< of the text's token, by the drafter's distribution; 0 for one that does not draw
  /// Probability that the drafted token is accepted, whatever the text has: sum_x min(p(x), q(x)),
  /// or the target's mass on the one token that is proposed deterministically.
  double overlap = 0.0;
};

/// A drafter at one position: the root is the text's token there.
struct TracePosition {
  int64_t drafted = 0;  ///< how deep its draft is, or would be
  /// As far as a draft can follow the text: the last one may be the first that cannot.
  std::vector<TraceDepth> depths = {};
};

/// A drafter at every position of a text that the target has drawn. Rounds begin where earlier ones
/// ended, so their counts alone are biased towards what follows a rejection; a trace has no rounds,
/// and every shape's rounds can be worked out from it.
///
/// Given the text y, the probability that a drafted token is what gave y_i is the same for every
/// lossless verifier that verifies token by token: min(1, q(y_i) / p(y_i)) when the draft is drawn,
/// and whether y_i is among the children when it is not.
struct DraftTrace {
  bool drawn = false;  ///< the drafter draws from its distribution
  int64_t depth = 0;   ///< deepest draft that was asked for
  int64_t width = 1;   ///< ranks are known below this
  /// [i]: root is output token i; there is none for the last token.
  std::vector<TracePosition> positions = {};
};

class DraftGrowth;

struct TraceOptions {
  int64_t depth = 8;
  int64_t width = 1;  ///< children that a tree could have; 1 = chains
};

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
  /// `target`: its distributions after the nodes of the draft. Throws ConfigError for a draft whose
  /// tokens were drawn by the drafter itself.
  void record(const Draft& draft, TargetProbs& target);
  DraftTrace finish() && { return std::move(trace_); }

 private:
  struct Seen {                             // at one depth
    std::vector<double> distribution = {};  // of a drafter that draws
    Token best = -1;
    int64_t rank = -1;
  };
  /// Looks at the distribution after `node`; true when the draft can go on with the text.
  bool see(DraftGrowth& growth, int64_t node);
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
