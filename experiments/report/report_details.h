#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tokenizers/tokenizer.h"
#include "decoders/analysis/cost_curve.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/trace_records.h"

namespace specdec {

/// What one strategy did on one question at one point of the sweep, turns and repeats added up.
struct QuestionResult {
  std::string sweep_point, strategy, question, category;
  int64_t tokens = 0;  ///< that the steps added
  int64_t steps = 0;
  double seconds = 0.0;                ///< of the steps
  std::optional<double> speedup = {};  ///< the first strategy's seconds per token / its own
  std::optional<double> tokens_per_second() const;
};

/// The run's own forwards that verified so many tokens.
struct WidthCost {
  int64_t width = 0;
  int64_t steps = 0;
  double median = 0.0, low = 0.0, high = 0.0;  ///< seconds; low and high are quartiles
};

/// What the cost curve says of a strategy, given how many tokens its steps drafted and added.
struct SpeedPrediction {
  std::string sweep_point, strategy;
  double speedup = 0.0;
};

/// A node of a hit tree: where the target's own text lies among what a drafter thinks most likely.
/// It is the drafter's choice `rank` (0 = its best) after its parent.
struct HitNode {
  int64_t parent = -1;  ///< index of a node; -1 = the newest token
  int64_t rank = 0;
  int64_t depth = 1;
  int64_t hits = 0;  ///< positions of the text where the path to this node is what followed
  bool operator==(const HitNode&) const = default;
};

/// The nodes that are hit most often, parents before children.
struct HitTree {
  std::string sweep_point, strategy;
  int64_t positions = 0;  ///< of the text
  std::vector<HitNode> nodes = {};
};

enum class PieceOrigin { kTarget, kAccepted, kRejected };

/// A piece of an example text. Of rejected tokens that are only counted `text` is empty: those of
/// further branches, and all in runs that did not record them.
struct ExamplePiece {
  std::string text;
  PieceOrigin origin = PieceOrigin::kTarget;
  int64_t count = 1;  ///< tokens
};

struct ExampleText {
  std::string sweep_point, strategy, question, category;
  int64_t steps = 0;
  std::vector<ExamplePiece> pieces;
  bool cut = false;  ///< more follows
};

/// How far back a target looks: [layers][ages] share of a layer's attention on keys of an age, by
/// age_bucket, in all forwards. Empty where the cache was not traced, or by caches of several
/// models.
using AttentionAges = std::vector<std::vector<double>>;

/// What a report shows beside its summary. Parts without data are empty.
struct ReportDetails {
  std::vector<QuestionResult> questions;
  std::vector<CostPoint> cost_curve;  ///< measured before the run and frozen
  std::vector<WidthCost> widths;
  std::vector<SpeedPrediction> predictions;
  std::vector<HitTree> trees;
  std::vector<ExampleText> examples;
  AttentionAges attention_ages;
};

/// What details are made from.
struct DetailSources {
  std::span<const GenerationRecord> records;
  /// The records in the order in which they were made, which rejected drafts were logged by; empty
  /// = `records` are in that order.
  std::span<const GenerationRecord> as_made = {};
  std::span<const TraceRecord> traces = {};
  std::optional<CostCurve> cost_curve = {};  ///< of the target
  const Tokenizer* tokenizer = nullptr;      ///< nullptr: examples show ids
  ConditionOf condition_of = {};             ///< see reference_points
};

ReportDetails collect_details(const DetailSources& sources);

/// The questions of a run, speed-ups against its first strategy at their reference point (see
/// reference_points); none where there is no such point.
std::vector<QuestionResult> question_results(std::span<const GenerationRecord> records,
                                             const ConditionOf& condition_of = {});

}  // namespace specdec
