#pragma once
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/metrics/metrics.h"
#include "experiments/report/report_tables.h"

namespace specdec {

/// A strategy at a point of the sweep, in two runs.
struct ComparedArm {
  std::string name;
  std::optional<SummaryRow> a = {}, b = {};  ///< all of each run; none where it lacks the arm
  /// Over the prompts and repeats that both have alike; none without any.
  std::optional<SummaryRow> shared_a = {}, shared_b = {};
  std::optional<Speedup> b_over_a = {};  ///< how many times as fast B is on those
  int64_t texts = 0;                     ///< greedy generations that both have
  std::vector<Divergence> unlike = {};   ///< where those with other tokens leave A's
  /// Of those with equal tokens as far as both go: one side ended at its max_new_tokens or with a
  /// full context, and the other went on.
  int64_t cut_short = 0;
};

/// A greedy choice between two logits that lie closer than this in both runs is a near tie:
/// rounding of another device, dtype or program can turn it over.
inline constexpr double kNearTieGap = 1e-3;
/// Number of an arm's texts that part at a near tie, among those that differ.
int64_t near_ties(const ComparedArm& arm);

/// One of the runs.
struct ComparedRun {
  std::string name;
  std::span<const GenerationRecord> records;
  ConditionOf condition_of = {};  ///< of its sweep; see reference_points
};

struct RunComparison {
  std::string name_a, name_b;
  std::vector<ComparedArm> arms;  ///< in A's order, then what only B has
  int64_t shared = 0;             ///< generations that both have of the same prompt
  int64_t unlike = 0;             ///< of the same name, but of prompts of other lengths
  std::vector<std::string> notes;
};

/// Pairs generations by point of the sweep, strategy, prompt and repeat.
RunComparison compare_runs(const ComparedRun& a, const ComparedRun& b);

ReportTable comparison_table(const RunComparison& comparison);
/// The first token that differs of each greedy text that both runs have: at most `rows` of them.
ReportTable differences_table(const RunComparison& comparison, size_t rows);
/// Writes a comparison for a terminal: which run is A and B, the table, notes.
void write_comparison(std::ostream& out, const RunComparison& comparison);
nlohmann::ordered_json comparison_json(const RunComparison& comparison);
/// A page like report.html.
void write_comparison_html(std::ostream& out, const RunComparison& comparison);

}  // namespace specdec
