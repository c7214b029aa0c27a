#pragma once
#include <cstdint>
#include <optional>

#include "decoders/analysis/cost_curve.h"
#include "decoders/shapes/chain.h"

namespace specdec {

/// Drafts the same number of tokens always.
class FixedDraftLength final : public ChainShape {
 public:
  /// Throws ConfigError when below 1.
  explicit FixedDraftLength(int64_t length);
  int64_t length(int64_t context) override;

 private:
  int64_t length_;
};

struct HeuristicOptions {
  int64_t initial = 5;
  int64_t min = 1;
  int64_t max = 20;
};

/// Drafts two more tokens when all were accepted, one fewer when not: the schedule of Hugging
/// Face's assisted generation. A step without a draft changes nothing.
class HeuristicDraftLength final : public ChainShape {
 public:
  /// Throws ConfigError unless 1 <= min <= initial <= max.
  explicit HeuristicDraftLength(const HeuristicOptions& options = {});
  void reset() override;
  int64_t length(int64_t context) override;
  void learn(int64_t drafted, int64_t accepted) override;

 private:
  HeuristicOptions options_;
  int64_t length_;
};

struct AdaptiveOptions {
  int64_t initial = 4;
  int64_t max = 16;
  double grow_above = 0.8;    ///< running acceptance rate (accepted / drafted)
  double shrink_below = 0.4;  ///< a lower limit of the same rate
  double memory = 0.8;        ///< weight of the past in the running rate, each step; below 1
  int64_t pause = 16;         ///< plain steps of the first pause; each that follows one in vain is
                              ///< twice as long
  int64_t max_pause = 128;
  int64_t probe = 4;  ///< steps with a draft of one token before it is tried again
  std::optional<CostCurve> target_cost = {};  ///< v(n); without it the acceptance alone decides
  /// Cost of one drafted token; none = drafting is free.
  std::optional<CostCurve> drafter_cost = {};
};

/// Grows the draft by one token while the running acceptance rate is high, shrinks it while it is
/// low, and decodes plainly for a while when even one token does not pay; then it probes again.
///
/// What pays: with cost curves, a draft of g tokens is expected to commit
/// E = 1 + a + ... + a^g tokens (a: the running probability that a drafted token is accepted once
/// those before it are; Leviathan et al., 2023, Equation 1) in v(1 + g) + g * c seconds, against
/// one token in v(1). Without curves one token pays while the acceptance rate is not below
/// `shrink_below`.
class AdaptiveDraftLength final : public ChainShape {
 public:
  /// Throws ConfigError for options out of range.
  explicit AdaptiveDraftLength(AdaptiveOptions options = {});
  void reset() override;
  int64_t length(int64_t context) override;
  void learn(int64_t drafted, int64_t accepted) override;

  /// True where a draft of `length` tokens is expected to be quicker than plain decoding.
  bool pays(int64_t length) const;

 private:
  void adjust();
  void begin_pause();

  AdaptiveOptions options_;
  int64_t length_ = 0;
  int64_t context_ = 0;
  double drafted_ = 0.0;  // decaying counts
  double accepted_ = 0.0;
  double trials_ = 0.0;  // drafted tokens whose fate was decided by themselves
  int64_t steps_at_one_ = 0;
  int64_t plain_left_ = 0;  // steps of the pause in progress
  int64_t pause_ = 0;       // length of the next pause
};

}  // namespace specdec
