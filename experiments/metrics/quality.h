#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "experiments/metrics/speedup.h"

namespace specdec {

/// A strategy may lose this share of all answers before it counts as worse, unless the config says
/// another (`quality: {margin: 0.02}`).
inline constexpr double kQualityMargin = 0.05;
/// Share of right answers of plain decoding below which, as above kQualityCeiling, a loss does not
/// show.
inline constexpr double kQualityFloor = 0.2;
inline constexpr double kQualityCeiling = 0.9;

enum class QualityConclusion {
  kNotWorse,    ///< the interval lies above -margin: not inferior
  kWorse,       ///< the interval lies below it
  kUndecided,   ///< the interval contains it, or there are too few questions for one
  kCannotTell,  ///< plain decoding is right below kQualityFloor or above kQualityCeiling
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
  /// never differ do not pass for certainty. None below kMinQuestions questions.
  std::optional<Interval> interval = {};
  int64_t questions = 0;
  double margin = kQualityMargin;  ///< of the conclusion
  QualityConclusion conclusion = QualityConclusion::kUndecided;
};

/// Comparison of quality; none without generations of which both were scored.
std::optional<QualityComparison> compare_quality(std::span<const GenerationPair> pairs,
                                                 double margin,
                                                 AnswerFlag flag = &GenerationRecord::is_right);

/// An arm of a sweep beside the plain arm: the first strategy at the run's first point. Arms of
/// another checkpoint, number format, adapter or grammar are compared with what they replace, which
/// the first strategy at their own point is not.
struct PlainComparison {
  std::optional<Speedup> speedup = {};          ///< decode speed-up against the plain arm
  std::optional<QualityComparison> right = {};  ///< of the scorers' answers
  std::optional<QualityComparison> valid = {};  ///< of the schemas' answers
};
PlainComparison compare_with_plain(std::span<const GenerationPair> pairs, double margin);

}  // namespace specdec
