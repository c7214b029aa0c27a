#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "decoders/analysis/cost_curve.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/trace_records.h"

namespace specdec {

struct Profile;

/// Which drafts to replay: chains, or trees of the drafter's most likely tokens.
struct ReplayShape {
  std::string name;
  int64_t depth = 0;  ///< of a chain: its length
  /// Nodes beside the root, each by the ranks on its path: [0], [1], [0, 0]; empty = a chain.
  std::vector<std::vector<int64_t>> tree = {};
};

/// A chain of `length` tokens. Throws ConfigError when it is below 1.
ReplayShape chain_shape(int64_t length);
/// A tree from its paths, "[[0],[1],[0,0]]". Throws ConfigError when it is no list of lists of
/// ranks, names a path twice, or a path without the one that leads to it.
ReplayShape parse_tree_shape(const std::string& text);

/// Seconds of the parts of a step, on the simulated machine.
struct StepCosts {
  CostCurve verify;                 ///< v(n)
  std::map<int64_t, double> draft;  ///< by the draft's depth; linear between and beyond
  std::map<int64_t, double> other;  ///< by verified nodes, the root included; the same
  /// What a generation's first draft takes longer, a token of the prompt: the drafter reads it.
  double prompt_token = 0.0;
  double draft_seconds(int64_t depth) const;
  double other_seconds(int64_t nodes) const;
};

/// The costs in a profile, v(n) that of a text's tokens where the target has experts. `drafter`
/// names one of its drafters; "" = its only one, or where it has none no costs of drafts, which
/// set_draft_cost then gives. Throws ConfigError when there is none of that name, or several to
/// choose from.
StepCosts costs_of(const Profile& profile, const std::string& drafter);
/// The costs of the run itself: its cost curve, scaled to what its steps took, and the median times
/// of the steps of `strategy` at `sweep_point` by depth. `records` are those of one condition (see
/// is_condition): steps without a draft count whatever their strategy. Throws Error when they have
/// no such steps, or `strategy` none with a draft.
StepCosts costs_of(const CostCurve& curve, std::span<const GenerationRecord> records,
                   const std::string& strategy, const std::string& sweep_point);
/// Drafting a token costs `ratio` plain forwards, reading the prompt nothing.
void set_draft_cost(StepCosts& costs, double ratio);

/// Expected sums over replayed generations, as Counts has them of measured ones.
struct ReplayCounts {
  double steps = 0.0;
  double drafting_steps = 0.0;
  double committed = 0.0;
  double drafted = 0.0;
  double accepted = 0.0;
  std::vector<double> accepted_at;  ///< [i - 1]: steps that accept position i
  double draft_seconds = 0.0;
  double verify_seconds = 0.0;
  double other_seconds = 0.0;
  double plain_seconds = 0.0;  ///< of plain decoding of the same texts

  double tokens_per_step() const { return committed / steps; }
  double seconds() const { return draft_seconds + verify_seconds + other_seconds; }
};

/// Why the shape cannot be simulated from this trace; "" when it can: deeper or wider than it was
/// recorded, siblings that were drawn, a verifier that does not verify token by token.
/// `asked_width` is trace.width of the run, 0 = not known: a trace has less where the drafter
/// proposed tokens by itself, and recording again would not help.
std::string replay_refusal(const TraceRecord& record, const ReplayShape& shape,
                           int64_t asked_width = 0);

/// Adds what speculation with the shape would have done on the trace's text, in expectation over
/// all that is random: the distribution of where rounds begin and how many tokens they accept,
/// given the text, is worked out exactly, without drawing. Its mean over texts that the target has
/// drawn is the true expectation. `costs` may be nullptr: no times then. The record must not be
/// refused.
void replay(const TraceRecord& record, const ReplayShape& shape, const StepCosts* costs,
            ReplayCounts& sums);

/// [i - 1]: mean overlap at depth i over every position of the texts whose draft followed the text
/// that far: exact acceptance without a bias towards where rounds begin.
std::vector<double> mean_overlaps(std::span<const TraceRecord> records);

}  // namespace specdec
