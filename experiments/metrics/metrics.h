#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/types.h"
#include "decoders/decoding_strategy.h"
#include "experiments/metrics/fidelity.h"
#include "experiments/metrics/generation_record.h"
#include "experiments/metrics/intervals.h"
#include "experiments/metrics/machine_load.h"
#include "experiments/metrics/missing_questions.h"
#include "experiments/metrics/quality.h"
#include "experiments/metrics/reference_points.h"
#include "experiments/metrics/speedup.h"
#include "experiments/metrics/step_groups.h"

namespace specdec {

/// Sums over steps and generations; every metric is a function of these counts and times.
///
/// A *step* is one target forward after the prefill; a *drafting step* is one with drafted > 0.
/// Position i (from 1) of a draft counts as drafted when the draft is at least i deep, and as
/// accepted when at least i of its tokens are accepted: of a chain, exactly when its i-th token is.
/// Of a tree that is the i-th level; a path that ends above the deepest leaf then counts as
/// rejected, so the rates by position of a tree are lower bounds.
struct Counts {
  int64_t generations = 0;
  int64_t tokens = 0;     ///< all new tokens, with the one that each prefill yields
  int64_t committed = 0;  ///< new tokens of the steps
  int64_t steps = 0;
  int64_t drafting_steps = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;  ///< wall time of all steps
  double draft_seconds = 0.0;
  double prompt_draft_seconds = 0.0;  ///< of these, reading prompts into the drafter's cache
  double verify_seconds = 0.0;
  /// Part of decode_seconds: whole samples that a correction drew and did not take, their prefills
  /// included (see CorrectedDecoding).
  double discarded_seconds = 0.0;
  ReadBacks read_backs = {};        ///< copies to the host, but the drafter's; none of a CPU's
  ReadBacks draft_read_backs = {};  ///< the drafter's
  /// Wall time of imported generations, in which prefill and steps are not told apart.
  double unsplit_seconds = 0.0;
  std::vector<int64_t> drafted_at;  ///< [i - 1]: steps whose draft is at least i deep
  std::vector<int64_t> reached_at;  ///< [i - 1]: of those, with the i - 1 positions before accepted
  std::vector<int64_t> accepted_at;       ///< [i - 1]: of those, with position i accepted
  std::vector<int64_t> steps_committing;  ///< [n]: steps that committed n tokens
  std::vector<int64_t> overlapped_at;  ///< [i - 1]: of reached_at, chains that logged their overlap
  std::vector<double> overlap_at;      ///< [i - 1]: sum of their overlaps at position i
  // Under a grammar; else zero.
  std::array<DraftCounts, 3> by_freedom = {};  ///< by Freedom
  double mask_seconds = 0.0;                   ///< finding the grammar's masks
  int64_t masked_tokens = 0;                   ///< tokens taken from a masked distribution
  double log_allowed = 0.0;                    ///< sum of their log Z
  int64_t mask_fallbacks = 0;                  ///< of those, by a fallback of a canonical grammar
  int64_t grammar_outputs = 0;                 ///< generations under it: is_constrained
  int64_t complete = 0;  ///< of those, ended by the grammar: whole texts of its language
  int64_t samples = 0;   ///< drawn for those (see CorrectedDecoding)

  /// Throws InternalError for counts that contradict each other (accepted <= depth <= drafted).
  void add(const Generation& generation);

 private:
  void add_grammar(const Generation& generation);
};

/// True for a step whose text ends within its draft: what the target evaluated behind the end is
/// counted neither in `drafted` nor in `depth`, so its forward was of more tokens than they say.
bool is_cut(const StepStatistics& step);
/// Tokens of a step at most: metrics count steps in lists by their tokens.
inline constexpr int64_t kMostStepTokens = int64_t{1} << 24;
/// What contradicts itself in the counts of a step; "" = nothing.
std::string step_mistake(const StepStatistics& step);

/// True for an output that was generated under a grammar: it holds masked tokens, or the grammar or
/// its correction left none. Beam searches, which mask no distribution, do not count.
bool is_constrained(const Generation& generation);

/// accepted / drafted, over all steps; none without drafts. Falls as drafts get longer, since what
/// follows a rejected token is rejected with it. vLLM's "draft acceptance rate", llama.cpp's
/// "accept".
std::optional<double> acceptance_rate(const Counts& counts);
/// [i - 1]: accepted at position i, of the steps that drafted it and accepted all before it; none
/// where no step did. Li et al., 2024 (EAGLE, arXiv:2401.15077) call it n-alpha.
std::vector<std::optional<double>> conditional_acceptance(const Counts& counts);
/// [i - 1]: accepted at position i, of all drafting steps, also those with a shorter draft: vLLM's
/// "per-position acceptance rate".
std::vector<double> unconditional_acceptance(const Counts& counts);
/// True where some draft was a tree: rates by position are lower bounds then, see Counts.
bool has_trees(const Counts& counts);
/// [i - 1]: the same as conditional_acceptance without the noise of drawing: the mean overlap
/// sum_x min(p(x), q(x)) = 1 - TV at position i, of the chains that accepted all before it; none
/// where no step logged it. The two agree in the limit. Leviathan et al., 2023 (arXiv:2211.17192),
/// corollary 3.6.
std::vector<std::optional<double>> exact_acceptance(const Counts& counts);
/// accepted / drafted of the tokens that stand where a grammar leaves so much open; none without.
std::optional<double> acceptance_rate(const Counts& counts, Freedom freedom);
/// Seconds of finding masks for each token that the steps added; none without a grammar.
std::optional<double> mask_seconds_per_token(const Counts& counts);
/// Mean log Z of a token (see Generation::log_allowed); none without a grammar.
std::optional<double> log_allowed_per_token(const Counts& counts);
/// Share of the outputs under a grammar that are whole texts of its language.
std::optional<double> complete_share(const Counts& counts);
/// Tokens per step with the correction or bonus token: committed / steps, over all steps; 1 for
/// plain decoding, more where a grammar forces tokens. None without steps. Xia et al., 2024
/// (Spec-Bench, arXiv:2401.07851) call it mean accepted tokens.
std::optional<double> tokens_per_step(const Counts& counts);
/// Accepted tokens per step, that is without the correction or bonus token: accepted / steps; 0 for
/// plain decoding.
std::optional<double> accepted_per_step(const Counts& counts);
/// Mean acceptance length, or block efficiency: 1 + accepted / drafting_steps, over drafting steps
/// only; without what a draft has behind the end of the text. Equals 1 + the sum of
/// unconditional_acceptance. EAGLE's tau; block efficiency in Sun et al., 2023 (SpecTr,
/// arXiv:2310.15141).
std::optional<double> acceptance_length(const Counts& counts);
/// Copies from a device's memory to the host in a step, each of which waits for the device: the
/// drafter's, and those of the target's forward and the decision. None where there were none: on a
/// CPU.
struct ReadBackRates {
  double drafting = 0.0;
  double verifying = 0.0;
  double bytes = 0.0;  ///< of both together
};
std::optional<ReadBackRates> read_backs_per_step(const Counts& counts);
/// drafted / steps.
std::optional<double> drafted_per_step(const Counts& counts);
/// Shares of the decode time, without that of reading prompts into the drafter's cache. What the
/// steps did not state as draft or verify, and no discarded sample took, counts as other, so that
/// the four sum to one.
struct TimeSplit {
  double draft = 0.0;
  double verify = 0.0;
  double other = 0.0;
  double discarded = 0.0;  ///< samples that a correction drew and did not take
};
/// Shares of the time; none when no time was measured.
std::optional<TimeSplit> time_split(const Counts& counts);
/// committed / decode_seconds: total tokens over total time, without prefill and the token that it
/// yields. None when no time was measured.
std::optional<double> decode_tokens_per_second(const Counts& counts);
/// tokens / (prefill_seconds + decode_seconds + unsplit_seconds).
std::optional<double> total_tokens_per_second(const Counts& counts);

/// A question of Spec-Bench, its turns added up, in the first repeat.
struct QuestionTime {
  int64_t tokens = 0;
  double seconds = 0.0;  ///< prefill included
};

/// Spec-Bench's speed (evaluation/speed.py): the mean of the questions' own tokens per second, not
/// total tokens over total time, so that short answers weigh as much as long ones. None without a
/// question that took time.
std::optional<double> mean_question_speed(std::span<const QuestionTime> questions);

/// Speeds as Spec-Bench's evaluation/speed.py has them, to compare with published ones. They differ
/// from ours: means of the questions' speeds instead of totals, and a baseline whose tokens are
/// counted by encoding its text again.
struct SpecBenchSpeed {
  double tokens_per_second = 0.0;             ///< mean_question_speed
  std::optional<double> baseline_speed = {};  ///< of the first strategy, by its text's tokens
  std::optional<double> speedup = {};         ///< tokens_per_second / baseline_speed
};

/// How sure the rate of acceptance at a position of the draft is.
struct PositionInterval {
  int64_t questions = 0;                  ///< with a step that reached the position
  std::optional<Interval> interval = {};  ///< 95 %, of conditional_acceptance, by share_interval
};

/// One strategy at one point of the sweep, over all prompts or those of one category.
struct SummaryRow {
  std::string sweep_point;
  std::string strategy;
  std::string category;  ///< "" for all prompts
  Counts counts = {};
  int64_t questions = 0;          ///< answered, wholly or in part
  MissingQuestions missing = {};  ///< why the speed-up is over fewer than all
  /// Decode speed-up against the first strategy at the row's reference point. None where there is
  /// no such point, and for prompts that the two do not share.
  std::optional<Speedup> speedup = {};
  std::optional<Speedup> end_to_end = {};  ///< end-to-end speed-up against the same
  std::optional<ImpossibleSpeedup> impossible = {};
  bool is_first = false;  ///< the strategy that the others are compared with
  std::optional<SpecBenchSpeed> spec_bench = {};
  std::optional<double> right_share = {};  ///< of the generations that were scored
  int64_t unscored = 0;                    ///< generations whose scorer took too long
  std::optional<QualityComparison> quality = {};
  std::optional<double> valid_share = {};  ///< of the generations with a schema that was checked
  std::optional<QualityComparison> validity = {};
  /// Comparison with the plain arm; none of that arm itself, and in runs whose strategies are all
  /// compared with it anyway.
  std::optional<PlainComparison> plain = {};
  std::optional<double> log_prob = {};                    ///< by mean_log_prob
  std::optional<LogProbComparison> log_probs = {};        ///< beside the first strategy's
  std::optional<double> total_variation_bound = {};       ///< of a lossy strategy that sampled
  std::optional<Interval> tokens_per_step_interval = {};  ///< 95 %, by ratio_interval
  std::vector<PositionInterval> position_intervals = {};  ///< [i - 1]: of position i
  StepGroups groups = {};
  /// Bytes of bytes_per_step that the target's forwards read in a second.
  std::optional<double> bytes_per_second = {};
  std::optional<double> copied_share = {};  ///< mean over the generations that have one
  std::optional<double> cache_bytes = {};   ///< most bytes of pages that a generation ended with
  std::optional<double> cache_fragmentation = {};  ///< mean over the generations that have one
  /// Tiers of a cache that has them: most bytes, and counts of all generations together.
  std::optional<KvTiers> cache_tiers = {};
  // Reads of a target with layers on disk, in all generations together.
  std::optional<double> disk_bytes_per_token = {};  ///< of weights, by new token, prefills included
  std::optional<double> disk_ready_share = {};      ///< of the layers' uses: without waiting
  std::optional<double> disk_wait_seconds = {};     ///< of forwards, for their layers
  int64_t shortened = 0;                   ///< generations of which before_loops left a part
  std::optional<Speedup> with_loops = {};  ///< by summarize_before_loops: of whole texts
};

/// Questions behind a row's speed-up; of the first strategy all that it answered.
int64_t compared_questions(const SummaryRow& row);

/// A place where a greedy strategy left the first strategy's tokens.
struct Divergence {
  GenerationKey key;       ///< of the strategy that left
  int64_t position = 0;    ///< index of the first new token that differs
  double gap_first = 0.0;  ///< best minus second best logit that the first strategy saw there
  double gap_other = 0.0;  ///< the same of the other; NaN where that generation had ended
  Token token_first = 0;   ///< -1 where that generation had ended
  Token token_other = 0;
};

struct Summary {
  std::vector<SummaryRow> rows;  ///< in order of appearance; all prompts first, then categories
  std::vector<Divergence> divergences;
  int64_t compared = 0;  ///< greedy generations that could diverge
  LoadTotals load = {};  ///< of all generations that recorded it
};

/// Names the group of a prompt by its category.
using CategoryOf = std::function<std::string(const std::string& category)>;

struct SummaryOptions {
  CategoryOf category_of = {};
  ConditionOf condition_of = {};  ///< see reference_points
  double quality_margin = kQualityMargin;
  int64_t lossy_arms = 1;  ///< conclusions about quality are corrected for their number
};

/// Rows of every (sweep point, strategy) and, when there are several, category, or what
/// `category_of` makes of it. The strategy of the first record is the first strategy: give them in
/// the order of a config's strategies.
Summary summarize(std::span<const GenerationRecord> records, const SummaryOptions& options = {});

}  // namespace specdec
