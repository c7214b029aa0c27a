#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/language_model.h"
#include "decoders/analysis/draft_bias.h"
#include "decoders/analysis/sequence_distribution.h"
#include "decoders/decoding_strategy.h"

namespace specdec {

/// Wrong verifiers of graded strength, simulated along the same traces: the smallest share of
/// drafts with the mistake that the test finds; none when it does not even find it in all.
struct BiasControls {
  std::optional<double> accept_all;       ///< accepts all of a draft unseen
  std::optional<double> target_residual;  ///< draws the correction from p, not from its residual
};

/// Texts are drawn once, and when they tell too little a second time: only those are tested then,
/// so that what was seen does not decide what is tested. Each draw is tested at this part of a
/// level.
inline constexpr double kDraws = 2.0;

/// Test of whether a strategy's own texts lean towards what its drafter prefers (see DraftBias).
struct PositionTest {
  DraftBias bias;
  int64_t texts = 0;
  /// True for a strategy without a drafter, or with none that can be traced: A is the target's most
  /// likely token.
  bool by_target = false;
  /// Share of the tokens of its steps with drafts that a draft decided; a bonus token is the
  /// target's own.
  double checked = 1.0;
  double visible = 1.0;  ///< the total variation a token that is found with probability kPower
  BiasControls controls = {};

  /// The p-value after Bonferroni, for a test that may draw its texts a second time.
  double p_value() const { return std::min(1.0, kDraws * bias.p_value()); }
  /// True where the test finds both mistakes, at least where all drafts have them.
  bool tells() const { return controls.accept_all && controls.target_residual; }
  /// Number of tokens, about, that it takes to find both mistakes; 0 = more than anyone draws.
  int64_t tokens_needed(double false_positives) const;
};

/// Probability with which tests find what they say that they see.
inline constexpr double kPower = 0.9;

/// Simulates the controls; `checked` as in PositionTest.
BiasControls find_controls(const DraftBias& bias, double checked, double false_positives);

/// One text of a strategy.
struct DrawnText {
  Task task;
  std::vector<Token> output;
  std::vector<StepStatistics> steps;
};

/// Tests the texts, which the strategy drew. `tracer`: the same strategy, built anew, so that what
/// its drafter remembers of drawing them is gone. `target`: the model that it is built on.
PositionTest test_positions(const std::vector<DrawnText>& texts, DecodingStrategy& tracer,
                            LanguageModel& target, double false_positives);

}  // namespace specdec
