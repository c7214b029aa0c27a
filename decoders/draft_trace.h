#pragma once
#include <cstdint>
#include <vector>

namespace specdec {

/// A drafter at one depth below a position of a text, given that the draft followed the text so
/// far.
struct TraceDepth {
  /// Place of the text's token among the drafter's most likely, from 0; -1 = not among the first
  /// `width`. A drafter that draws has the exact place.
  int64_t rank = -1;
  double p = 0.0;  ///< probability of the text's token by the target's distribution
  /// Probability of the text's token by the drafter's distribution; 0 for one that does not draw.
  double q = 0.0;
  /// Probability that the drafted token is accepted, whatever the text has: sum_x min(p(x), q(x)),
  /// or the target's mass on the one token that is proposed deterministically.
  double overlap = 0.0;
  /// The target's mass on the tokens that the drafter rates above the target (those with q(x) >
  /// p(x), or the one that is proposed deterministically), and whether the text's token is one.
  double favoured = 0.0;
  bool is_favoured = false;
};

/// A drafter at one position: the root is the text's token there.
struct TracePosition {
  int64_t drafted = 0;  ///< how deep its draft is, or would be
  /// Depths as far as a draft can follow the text: the last one may be the first that cannot.
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
  /// Positions of the output: the root of [i] is output token i; there is none for the last token.
  std::vector<TracePosition> positions = {};
};

struct TraceOptions {
  int64_t depth = 8;
  int64_t width = 1;  ///< children that a tree could have; 1 = chains
};

}  // namespace specdec
