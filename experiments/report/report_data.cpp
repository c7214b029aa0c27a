#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <vector>

#include "core/formats/json_text.h"
#include "experiments/metrics/cache_records.h"
#include "experiments/report/conditions.h"
#include "experiments/report/headline.h"
#include "experiments/report/report.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

using Json = nlohmann::ordered_json;

/// JSON has no NaN and no infinity.
Json json_number(std::optional<double> number) {
  return number && std::isfinite(*number) ? Json(*number) : Json();
}

Json interval_json(const std::optional<Interval>& interval) {
  return interval ? Json{interval->low, interval->high} : Json();
}

Json impossible_json(const std::optional<ImpossibleSpeedup>& impossible) {
  return impossible ? Json{{"low_95", impossible->low},
                           {"tokens_per_step_ratio", impossible->step_ratio},
                           {"questions", impossible->questions}}
                    : Json();
}

/// Quality of answers; null where nothing was scored.
Json quality_json(const std::optional<QualityComparison>& quality) {
  if (!quality) {
    return {};
  }
  constexpr std::array kConclusions = {"not_worse", "worse", "undecided", "cannot_tell"};
  return {{"right_share", quality->share},
          {"right_share_of_first", quality->first_share},
          {"difference_interval_95", interval_json(quality->interval)},
          {"corrected_interval_95", interval_json(quality->corrected)},
          {"corrected_for_arms", quality->arms},
          {"questions", quality->questions},
          {"margin", quality->margin},
          {"conclusion", kConclusions.at(static_cast<size_t>(quality->conclusion))}};
}

/// Validity of answers; null where none was checked.
Json validity_json(const std::optional<QualityComparison>& validity) {
  return validity ? Json{{"valid_share", validity->share},
                         {"valid_share_of_first", validity->first_share},
                         {"difference_interval_95", interval_json(validity->interval)},
                         {"questions", validity->questions}}
                  : Json();
}

/// Comparison with the plain arm; null for that arm itself, and in runs where that is the first
/// strategy of every arm.
Json plain_json(const std::optional<PlainComparison>& plain) {
  if (!plain) {
    return {};
  }
  const auto& speedup = plain->speedup;
  return {{"speedup", speedup ? Json(speedup->ratio) : Json()},
          {"speedup_interval_95", speedup ? interval_json(speedup->interval) : Json()},
          {"quality", quality_json(plain->right)},
          {"validity", validity_json(plain->valid)}};
}

/// Comparison of log-probabilities; null where no lossy texts were measured.
Json log_prob_json(const std::optional<LogProbComparison>& texts) {
  return texts ? Json{{"difference", texts->difference},
                      {"difference_interval_95", interval_json(texts->interval)},
                      {"questions", texts->questions}}
               : Json();
}

/// A fastest arm, with intervals that are right though it was selected.
Json arm_json(const FastestArm& fastest) {
  const SummaryRow& row = *fastest.row;
  return {
      {"condition", fastest.condition},
      {"sweep_point", row.sweep_point},
      {"strategy", row.strategy},
      {"selected_among", fastest.arms},
      {"speedup", row.speedup->ratio},
      {"speedup_interval_95_simultaneous", interval_json(fastest.interval)},
      {"end_to_end_speedup", row.end_to_end ? Json(row.end_to_end->ratio) : Json()},
      {"end_to_end_speedup_interval_95_simultaneous", interval_json(fastest.end_to_end_interval)}};
}

/// The fastest of all; null for none.
Json headline_json(const Report& report) {
  const auto fastest = fastest_arm(report);
  if (!fastest) {
    return {};
  }
  Json json = arm_json(*fastest);
  json["text"] = headline(report);
  json["by_condition"] = Json::array();
  for (const FastestArm& each : fastest_arms(report)) {
    json["by_condition"].push_back(arm_json(each));
  }
  return json;
}

/// Load in the mean over the run, back-offs in all; null where the system does not tell it.
Json load_totals_json(const LoadTotals& load) {
  return {{"generations", load.generations()},
          {"load_average", json_number(load.average())},
          {"stolen_cpus", json_number(load.stolen())},
          {"cpus_of_others", json_number(load.others())},
          {"cpus_waited_for", json_number(load.waited())},
          {"preemptions_per_second", json_number(load.preemptions_per_second())},
          {"back_offs", load.back_offs() ? Json(*load.back_offs()) : Json()}};
}

/// Speeds by the definitions of Spec-Bench's evaluation/speed.py.
Json spec_bench_json(const SummaryRow& row) {
  if (!row.spec_bench) {
    return {};
  }
  return {{"mean_accepted_tokens", json_number(tokens_per_step(row.counts))},
          {"tokens_per_second", row.spec_bench->tokens_per_second},
          {"baseline_tokens_per_second", json_number(row.spec_bench->baseline_speed)},
          {"speedup_ratio", json_number(row.spec_bench->speedup)}};
}

/// The counters of vLLM's metrics that mean the same; steps without a draft are in none of them.
Json vllm_json(const Counts& counts) {
  return {{"vllm:spec_decode_num_drafts", counts.drafting_steps},
          {"vllm:spec_decode_num_draft_tokens", counts.drafted},
          {"vllm:spec_decode_num_accepted_tokens", counts.accepted},
          {"vllm:spec_decode_num_accepted_tokens_per_pos", counts.accepted_at}};
}

/// Counts under a grammar; null without one.
Json grammar_json(const Counts& counts) {
  if (counts.grammar_outputs == 0) {
    return {};
  }
  Json json = {{"complete_share", json_number(complete_share(counts))},
               {"mask_seconds_per_token", json_number(mask_seconds_per_token(counts))},
               {"log_allowed_per_token", json_number(log_allowed_per_token(counts))},
               {"tokens", counts.masked_tokens},
               {"mask_fallbacks", counts.mask_fallbacks},
               {"outputs", counts.grammar_outputs},
               {"complete", counts.complete},
               {"samples", counts.samples},
               {"mask_seconds", counts.mask_seconds},
               {"log_allowed", counts.log_allowed}};
  constexpr std::array kNames = {"free", "constrained", "forced"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    const DraftCounts& drafts = counts.by_freedom[i];
    json[kNames[i]] = {
        {"drafted", drafts.drafted},
        {"accepted", drafts.accepted},
        {"acceptance_rate", json_number(acceptance_rate(counts, static_cast<Freedom>(i)))}};
  }
  return json;
}

/// Copies from a device per step; null without any.
Json read_backs_json(const Counts& counts) {
  const auto rates = read_backs_per_step(counts);
  return rates ? Json{{"draft_per_step", rates->drafting},
                      {"target_per_step", rates->verifying},
                      {"bytes_per_step", rates->bytes},
                      {"draft", counts.draft_read_backs.count},
                      {"draft_bytes", counts.draft_read_backs.bytes},
                      {"target", counts.read_backs.count},
                      {"target_bytes", counts.read_backs.bytes}}
               : Json();
}

Json step_group_json(const StepGroup& group) {
  return {{"steps", group.steps},
          {"drafted", group.drafted},
          {"accepted", group.accepted},
          {"committed", group.committed},
          {"questions", group.questions},
          {"acceptance_rate", json_number(acceptance_rate(group))},
          {"acceptance_rate_interval_95", interval_json(group.acceptance_interval)},
          {"tokens_per_step", json_number(tokens_per_step(group))}};
}

/// Steps within and outside thinking.
Json phases_json(const StepGroups& groups) {
  constexpr std::array kNames = {"thinking", "answer"};
  Json json;
  for (size_t i = 0; i < kNames.size(); ++i) {
    json[kNames[i]] = step_group_json(groups.by_phase[i]);
  }
  return json;
}

/// Steps by the smallest length of their context's bucket.
Json contexts_json(const StepGroups& groups) {
  Json json = Json::array();
  for (const auto& [shortest, group] : groups.by_context) {
    json.push_back(step_group_json(group));
    json.back()["context_from"] = shortest;
  }
  return json;
}

Json counts_json(const Counts& counts) {
  return {{"generations", counts.generations},
          {"tokens", counts.tokens},
          {"committed", counts.committed},
          {"steps", counts.steps},
          {"drafting_steps", counts.drafting_steps},
          {"drafted", counts.drafted},
          {"accepted", counts.accepted},
          {"prefill_seconds", counts.prefill_seconds},
          {"decode_seconds", counts.decode_seconds},
          {"draft_seconds", counts.draft_seconds},
          {"prompt_draft_seconds", counts.prompt_draft_seconds},
          {"verify_seconds", counts.verify_seconds},
          {"discarded_seconds", counts.discarded_seconds},
          {"drafted_at", counts.drafted_at},
          {"reached_at", counts.reached_at},
          {"accepted_at", counts.accepted_at},
          {"steps_committing", counts.steps_committing},
          {"overlapped_at", counts.overlapped_at},
          {"overlap_at", counts.overlap_at}};
}

Json json_numbers(const std::vector<std::optional<double>>& numbers) {
  Json list = Json::array();
  for (const auto& number : numbers) {
    list.push_back(json_number(number));
  }
  return list;
}

/// What a strategy did by itself.
Json own_row_json(const SummaryRow& row) {
  const Counts& counts = row.counts;
  const auto split = time_split(counts);
  Json intervals = Json::array();
  Json position_questions = Json::array();
  for (const PositionInterval& position : row.position_intervals) {
    intervals.push_back(interval_json(position.interval));
    position_questions.push_back(position.questions);
  }
  return {{"decode_tokens_per_second", json_number(decode_tokens_per_second(counts))},
          {"total_tokens_per_second", json_number(total_tokens_per_second(counts))},
          {"tokens_per_step", json_number(tokens_per_step(counts))},
          {"tokens_per_step_interval_95", interval_json(row.tokens_per_step_interval)},
          {"accepted_per_step", json_number(accepted_per_step(counts))},
          {"acceptance_length", json_number(acceptance_length(counts))},
          {"drafted_per_step", json_number(drafted_per_step(counts))},
          {"acceptance_rate", json_number(acceptance_rate(counts))},
          {"conditional_acceptance", json_numbers(conditional_acceptance(counts))},
          {"conditional_acceptance_is_lower_bound", has_trees(counts)},
          {"conditional_acceptance_interval_95", std::move(intervals)},
          {"conditional_acceptance_questions", std::move(position_questions)},
          {"unconditional_acceptance", unconditional_acceptance(counts)},
          {"exact_acceptance", json_numbers(exact_acceptance(counts))},
          {"phases", phases_json(row.groups)},
          {"contexts", contexts_json(row.groups)},
          {"draft_share", split ? Json(split->draft) : Json()},
          {"verify_share", split ? Json(split->verify) : Json()},
          {"other_share", split ? Json(split->other) : Json()},
          {"discarded_share", split ? Json(split->discarded) : Json()},
          {"read_backs", read_backs_json(counts)},
          {"spec_bench", spec_bench_json(row)},
          {"vllm", vllm_json(counts)},
          {"grammar", grammar_json(counts)},
          {"counts", counts_json(counts)}};
}

}  // namespace

Json row_json(const SummaryRow& row) {
  Json json = {
      {"sweep_point", row.sweep_point},
      {"strategy", row.strategy},
      {"category", row.category.empty() ? Json() : Json(row.category)},
      {"is_first", row.is_first},
      {"questions", row.questions},
      {"missing_questions",
       {{"not_run", row.missing.not_run},
        {"not_by_first", row.missing.not_by_first},
        {"without_decode_steps", row.missing.untimed},
        {"none_accepted", row.missing.none_accepted},
        {"none_accepted_seconds", row.missing.none_accepted_seconds},
        {"in_part", row.missing.in_part}}},
      {"speedup", row.speedup ? Json(row.speedup->ratio) : Json()},
      {"speedup_interval_95", row.speedup ? interval_json(row.speedup->interval) : Json()},
      {"speedup_of_totals", row.speedup ? Json(row.speedup->of_totals) : Json()},
      {"speedup_questions", row.speedup ? Json(row.speedup->questions) : Json()},
      {"end_to_end_speedup", row.end_to_end ? Json(row.end_to_end->ratio) : Json()},
      {"end_to_end_speedup_interval_95",
       row.end_to_end ? interval_json(row.end_to_end->interval) : Json()},
      {"end_to_end_questions", row.end_to_end ? Json(row.end_to_end->questions) : Json()},
      {"end_to_end_speedup_of_totals", row.end_to_end ? Json(row.end_to_end->of_totals) : Json()},
      {"right_share", json_number(row.right_share)},
      {"unscored", row.unscored},
      {"quality", quality_json(row.quality)},
      {"valid_share", json_number(row.valid_share)},
      {"validity", validity_json(row.validity)},
      {"against_plain_arm", plain_json(row.plain)},
      {"log_prob_per_token", json_number(row.log_prob)},
      {"log_prob_comparison", log_prob_json(row.log_probs)},
      {"total_variation_at_least", json_number(row.total_variation_bound)},
      {"bytes_per_second", json_number(row.bytes_per_second)},
      {"cache_bytes", json_number(row.cache_bytes)},
      {"cache_fragmentation", json_number(row.cache_fragmentation)},
      {"cache_tiers", row.cache_tiers ? cache_tiers_json(*row.cache_tiers) : Json()},
      {"disk_bytes_per_token", json_number(row.disk_bytes_per_token)},
      {"disk_ready_share", json_number(row.disk_ready_share)},
      {"disk_wait_seconds", json_number(row.disk_wait_seconds)},
      {"copied_share", json_number(row.copied_share)},
      {"shortened", row.shortened},
      {"speedup_with_loops", row.with_loops ? Json(row.with_loops->ratio) : Json()},
      {"speedup_with_loops_interval_95",
       row.with_loops ? interval_json(row.with_loops->interval) : Json()},
      {"impossible_speedup", impossible_json(row.impossible)}};
  json.update(own_row_json(row));
  return json;
}

namespace {

Json divergence_json(const Divergence& divergence) {
  return {{"sweep_point", divergence.key.sweep_point},
          {"strategy", divergence.key.strategy},
          {"prompt", divergence.key.prompt_id},
          {"repeat", divergence.key.repeat},
          {"position", divergence.position},
          {"gap_first", json_number(divergence.gap_first)},
          {"gap_other", json_number(divergence.gap_other)},
          {"token_first", divergence.token_first},
          {"token_other", divergence.token_other}};
}

}  // namespace

void write_json(std::ostream& out, const Report& report) {
  Json strategies = Json::array();
  for (const ReportStrategy& strategy : report.strategies) {
    strategies.push_back({{"name", strategy.name},
                          {"description", strategy.description},
                          {"lossy", strategy.lossy},
                          {"uncertified", strategy.uncertified},
                          {"reproducible", strategy.reproducible}});
  }
  Json points = Json::array();
  for (const ReportSweepPoint& point : report.sweep_points) {
    points.push_back({{"label", point.label},
                      {"condition", point.condition},
                      {"choice", point.choice},
                      {"values", point.values}});
  }
  Json rows = Json::array();
  for (const SummaryRow& row : report.summary.rows) {
    rows.push_back(row_json(row));
  }
  Json divergences = Json::array();
  for (const Divergence& divergence : report.summary.divergences) {
    divergences.push_back(divergence_json(divergence));
  }
  const Json json = {{"name", report.name},
                     {"description", report.description},
                     {"command", report.command},
                     {"environment", environment_json(report.environment)},
                     {"headline", headline_json(report)},
                     {"load", load_totals_json(report.summary.load)},
                     {"strategies", std::move(strategies)},
                     {"sweep_keys", report.sweep_keys},
                     {"sweep_points", std::move(points)},
                     {"rows", std::move(rows)},
                     {"compared_generations", report.summary.compared},
                     {"divergences", std::move(divergences)},
                     {"notes", reader_notes(report)},
                     {"run_notes", report.notes}};
  out << json_text(json, 2) << "\n";
}

}  // namespace specdec
