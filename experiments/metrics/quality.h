#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "experiments/metrics/speedup.h"

namespace specdec {

/// A strategy may lose this share of all answers before it counts as worse, unless the config says
/// another (`quality: {margin: 0.02}`).
inline constexpr double kQualityMargin = 0.05;
/// Share of right answers of plain decoding below which a loss has no room to show.
inline constexpr double kQualityFloor = 0.2;
/// Share above which questions are too easy to show that there is no loss; a loss shows there.
inline constexpr double kQualityCeiling = 0.9;

enum class QualityConclusion {
  kNotWorse,    ///< the interval lies above -margin: not inferior
  kWorse,       ///< the interval lies below it, whatever plain decoding's share
  kUndecided,   ///< the interval contains it, or there are too few questions for one
  kCannotTell,  ///< not worse by the interval alone, but plain decoding is right above
                ///< kQualityCeiling; or not worse or undecided, and right below kQualityFloor
};

/// What an answer may be: right by its scorer, or valid by its schema.
using AnswerFlag = std::optional<bool> GenerationRecord::*;

/// Right or valid answers of a strategy beside the first strategy's, on the same turns and repeats.
struct QualityComparison {
  double first_share = 0.0;  ///< mean over questions of the share that has the flag
  double share = 0.0;
  /// 95 %, of share - first_share: Student's t interval over questions of paired differences, with
  /// half an observation added to each of the four outcomes (Agresti and Min, 2005, "Simple
  /// improved confidence intervals for comparing matched proportions"), so that questions that
  /// never differ do not pass for certainty. Within -1 to 1. None below kMinQuestions questions.
  std::optional<Interval> interval = {};
  int64_t questions = 0;
  double margin = kQualityMargin;  ///< of the conclusion
  QualityConclusion conclusion = QualityConclusion::kUndecided;
  int64_t arms = 1;  ///< of which as much is concluded
  /// The interval behind the conclusion: at 1 - 0.05 / arms (Bonferroni), so that those of all arms
  /// hold together in 95 % of experiments.
  std::optional<Interval> corrected = {};
};

/// What conclusions about quality are drawn by.
struct QualityOptions {
  double margin = kQualityMargin;
  int64_t arms = 1;  ///< about which conclusions are drawn on the same questions
};

/// Comparison of quality; none without generations of which both were scored.
std::optional<QualityComparison> compare_quality(std::span<const GenerationPair> pairs,
                                                 const QualityOptions& options,
                                                 AnswerFlag flag = &GenerationRecord::is_right);

/// An arm of a sweep beside the plain arm: the first strategy at the run's first point. Arms of
/// another checkpoint, number format, adapter or grammar are compared with what they replace, which
/// the first strategy at their own point is not.
struct PlainComparison {
  std::optional<Speedup> speedup = {};          ///< decode speed-up against the plain arm
  std::optional<QualityComparison> right = {};  ///< of the scorers' answers
  std::optional<QualityComparison> valid = {};  ///< of the schemas' answers
};
PlainComparison compare_with_plain(std::span<const GenerationPair> pairs,
                                   const QualityOptions& options);

}  // namespace specdec
