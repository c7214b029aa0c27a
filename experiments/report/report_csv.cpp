#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <ostream>
#include <vector>

#include "experiments/report/conditions.h"
#include "experiments/report/report.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

std::string csv_number(std::optional<double> number) {
  return number && std::isfinite(*number) ? fmt::format("{}", *number) : "";
}

std::string csv_speedup(const std::optional<Speedup>& speedup) {
  return speedup ? csv_number(speedup->ratio) : "";
}

template <class Measured>
std::string csv_limit(const std::optional<Measured>& measured, double Interval::*limit) {
  return measured && measured->interval ? csv_number((*measured->interval).*limit) : "";
}

std::string csv_difference(const std::optional<QualityComparison>& quality) {
  return quality ? csv_number(quality->share - quality->first_share) : "";
}

/// Cell of a number of the tiers; empty where the target's cache has none.
template <class T>
std::string csv_tiers(const SummaryRow& row, T KvTiers::*number) {
  return row.cache_tiers ? fmt::format("{}", (*row.cache_tiers).*number) : "";
}

/// Empty where no time was measured.
std::string csv_share(const SummaryRow& row, double TimeSplit::*share) {
  const auto split = time_split(row.counts);
  return split ? csv_number((*split).*share) : "";
}

/// Empty without copies from a device.
std::string csv_read_backs(const SummaryRow& row, double ReadBackRates::*rate) {
  const auto rates = read_backs_per_step(row.counts);
  return rates ? csv_number((*rates).*rate) : "";
}

struct CsvColumn {
  const char* name;
  std::string (*cell)(const SummaryRow& row);
};

/// Columns of comparisons with the first strategy.
std::vector<CsvColumn> comparison_columns() {
  using Row = const SummaryRow&;
  return {
      {"sweep_point", [](Row row) { return quote_csv(row.sweep_point); }},
      {"strategy", [](Row row) { return quote_csv(row.strategy); }},
      {"category", [](Row row) { return quote_csv(row.category); }},
      {"speedup", [](Row row) { return csv_speedup(row.speedup); }},
      {"speedup_low_95", [](Row row) { return csv_limit(row.speedup, &Interval::low); }},
      {"speedup_high_95", [](Row row) { return csv_limit(row.speedup, &Interval::high); }},
      {"speedup_of_totals",
       [](Row row) { return row.speedup ? csv_number(row.speedup->of_totals) : ""; }},
      {"speedup_with_loops", [](Row row) { return csv_speedup(row.with_loops); }},
      {"speedup_with_loops_low_95",
       [](Row row) { return csv_limit(row.with_loops, &Interval::low); }},
      {"speedup_with_loops_high_95",
       [](Row row) { return csv_limit(row.with_loops, &Interval::high); }},
      {"end_to_end_speedup", [](Row row) { return csv_speedup(row.end_to_end); }},
      {"end_to_end_speedup_low_95",
       [](Row row) { return csv_limit(row.end_to_end, &Interval::low); }},
      {"end_to_end_speedup_high_95",
       [](Row row) { return csv_limit(row.end_to_end, &Interval::high); }},
      {"end_to_end_speedup_of_totals",
       [](Row row) { return row.end_to_end ? csv_number(row.end_to_end->of_totals) : ""; }},
      {"questions", [](Row row) { return fmt::format("{}", compared_questions(row)); }},
      {"questions_not_run", [](Row row) { return fmt::format("{}", row.missing.not_run); }},
      {"questions_not_by_first",
       [](Row row) { return fmt::format("{}", row.missing.not_by_first); }},
      {"questions_without_decode_steps",
       [](Row row) { return fmt::format("{}", row.missing.untimed); }},
      {"questions_in_part", [](Row row) { return fmt::format("{}", row.missing.in_part); }},
      {"questions_none_accepted",
       [](Row row) { return fmt::format("{}", row.missing.none_accepted); }},
      {"none_accepted_seconds",
       [](Row row) { return csv_number(row.missing.none_accepted_seconds); }},
  };
}

/// Columns of what a strategy did by itself.
std::vector<CsvColumn> own_columns() {
  using Row = const SummaryRow&;
  return {
      {"decode_tokens_per_second",
       [](Row row) { return csv_number(decode_tokens_per_second(row.counts)); }},
      {"total_tokens_per_second",
       [](Row row) { return csv_number(total_tokens_per_second(row.counts)); }},
      {"tokens_per_step", [](Row row) { return csv_number(tokens_per_step(row.counts)); }},
      {"tokens_per_step_low_95",
       [](Row row) {
         const auto& interval = row.tokens_per_step_interval;
         return interval ? csv_number(interval->low) : "";
       }},
      {"tokens_per_step_high_95",
       [](Row row) {
         const auto& interval = row.tokens_per_step_interval;
         return interval ? csv_number(interval->high) : "";
       }},
      {"accepted_per_step", [](Row row) { return csv_number(accepted_per_step(row.counts)); }},
      {"acceptance_length", [](Row row) { return csv_number(acceptance_length(row.counts)); }},
      {"drafted_per_step", [](Row row) { return csv_number(drafted_per_step(row.counts)); }},
      {"acceptance_rate", [](Row row) { return csv_number(acceptance_rate(row.counts)); }},
      {"acceptance_rate_thinking",
       [](Row row) { return csv_number(acceptance_rate(row.groups.of(Phase::kThinking))); }},
      {"acceptance_rate_answer",
       [](Row row) { return csv_number(acceptance_rate(row.groups.of(Phase::kAnswer))); }},
      {"tokens_per_step_thinking",
       [](Row row) { return csv_number(tokens_per_step(row.groups.of(Phase::kThinking))); }},
      {"tokens_per_step_answer",
       [](Row row) { return csv_number(tokens_per_step(row.groups.of(Phase::kAnswer))); }},
      {"draft_share", [](Row row) { return csv_share(row, &TimeSplit::draft); }},
      {"verify_share", [](Row row) { return csv_share(row, &TimeSplit::verify); }},
      {"other_share", [](Row row) { return csv_share(row, &TimeSplit::other); }},
      {"discarded_share", [](Row row) { return csv_share(row, &TimeSplit::discarded); }},
      {"draft_seconds", [](Row row) { return csv_number(row.counts.draft_seconds); }},
      {"prompt_draft_seconds", [](Row row) { return csv_number(row.counts.prompt_draft_seconds); }},
      {"verify_seconds", [](Row row) { return csv_number(row.counts.verify_seconds); }},
      {"decode_seconds", [](Row row) { return csv_number(row.counts.decode_seconds); }},
      {"prefill_seconds", [](Row row) { return csv_number(row.counts.prefill_seconds); }},
      {"generations", [](Row row) { return fmt::format("{}", row.counts.generations); }},
      {"generations_shortened", [](Row row) { return fmt::format("{}", row.shortened); }},
      {"tokens", [](Row row) { return fmt::format("{}", row.counts.tokens); }},
      {"steps", [](Row row) { return fmt::format("{}", row.counts.steps); }},
      {"drafted", [](Row row) { return fmt::format("{}", row.counts.drafted); }},
      {"accepted", [](Row row) { return fmt::format("{}", row.counts.accepted); }},
      {"log_prob_per_token", [](Row row) { return csv_number(row.log_prob); }},
      {"log_prob_difference",
       [](Row row) { return row.log_probs ? csv_number(row.log_probs->difference) : ""; }},
      {"log_prob_difference_low_95",
       [](Row row) { return csv_limit(row.log_probs, &Interval::low); }},
      {"log_prob_difference_high_95",
       [](Row row) { return csv_limit(row.log_probs, &Interval::high); }},
      {"total_variation_at_least", [](Row row) { return csv_number(row.total_variation_bound); }},
  };
}

/// Columns of what forwards read and copied, of the target's cache and of its layers on disk.
std::vector<CsvColumn> memory_csv_columns() {
  using Row = const SummaryRow&;
  return {
      {"draft_read_backs_per_step",
       [](Row row) { return csv_read_backs(row, &ReadBackRates::drafting); }},
      {"target_read_backs_per_step",
       [](Row row) { return csv_read_backs(row, &ReadBackRates::verifying); }},
      {"read_back_bytes_per_step",
       [](Row row) { return csv_read_backs(row, &ReadBackRates::bytes); }},
      {"bytes_per_second", [](Row row) { return csv_number(row.bytes_per_second); }},
      {"copied_share", [](Row row) { return csv_number(row.copied_share); }},
      {"disk_bytes_per_token", [](Row row) { return csv_number(row.disk_bytes_per_token); }},
      {"disk_ready_share", [](Row row) { return csv_number(row.disk_ready_share); }},
      {"disk_wait_seconds", [](Row row) { return csv_number(row.disk_wait_seconds); }},
      {"cache_bytes", [](Row row) { return csv_number(row.cache_bytes); }},
      {"cache_fragmentation", [](Row row) { return csv_number(row.cache_fragmentation); }},
      {"cache_memory_bytes", [](Row row) { return csv_tiers(row, &KvTiers::memory_bytes); }},
      {"cache_peak_memory_bytes",
       [](Row row) { return csv_tiers(row, &KvTiers::peak_memory_bytes); }},
      {"cache_host_bytes", [](Row row) { return csv_tiers(row, &KvTiers::host_bytes); }},
      {"cache_disk_bytes", [](Row row) { return csv_tiers(row, &KvTiers::disk_bytes); }},
      {"cache_accesses", [](Row row) { return csv_tiers(row, &KvTiers::accesses); }},
      {"cache_promotions", [](Row row) { return csv_tiers(row, &KvTiers::promotions); }},
      {"cache_demotions", [](Row row) { return csv_tiers(row, &KvTiers::demotions); }},
      {"cache_read_bytes", [](Row row) { return csv_tiers(row, &KvTiers::read_bytes); }},
      {"cache_written_bytes", [](Row row) { return csv_tiers(row, &KvTiers::written_bytes); }},
      {"cache_wait_seconds", [](Row row) { return csv_tiers(row, &KvTiers::wait_seconds); }},
  };
}

/// Columns of decoding under a grammar; empty without one.
std::vector<CsvColumn> grammar_csv_columns() {
  using Row = const SummaryRow&;
  return {
      {"acceptance_rate_free",
       [](Row row) { return csv_number(acceptance_rate(row.counts, Freedom::kFree)); }},
      {"acceptance_rate_constrained",
       [](Row row) { return csv_number(acceptance_rate(row.counts, Freedom::kConstrained)); }},
      {"acceptance_rate_forced",
       [](Row row) { return csv_number(acceptance_rate(row.counts, Freedom::kForced)); }},
      {"complete_share", [](Row row) { return csv_number(complete_share(row.counts)); }},
      {"mask_seconds_per_token",
       [](Row row) { return csv_number(mask_seconds_per_token(row.counts)); }},
      {"log_allowed_per_token",
       [](Row row) { return csv_number(log_allowed_per_token(row.counts)); }},
  };
}

/// Columns of right and valid answers, beside the first strategy's and beside the plain arm's.
std::vector<CsvColumn> quality_csv_columns() {
  using Row = const SummaryRow&;
  return {
      {"right_share", [](Row row) { return csv_number(row.right_share); }},
      {"unscored", [](Row row) { return fmt::format("{}", row.unscored); }},
      {"right_difference", [](Row row) { return csv_difference(row.quality); }},
      {"right_difference_low_95", [](Row row) { return csv_limit(row.quality, &Interval::low); }},
      {"right_difference_high_95", [](Row row) { return csv_limit(row.quality, &Interval::high); }},
      {"valid_share", [](Row row) { return csv_number(row.valid_share); }},
      {"valid_difference", [](Row row) { return csv_difference(row.validity); }},
      {"valid_difference_low_95", [](Row row) { return csv_limit(row.validity, &Interval::low); }},
      {"valid_difference_high_95",
       [](Row row) { return csv_limit(row.validity, &Interval::high); }},
      {"plain_speedup", [](Row row) { return row.plain ? csv_speedup(row.plain->speedup) : ""; }},
      {"plain_speedup_low_95",
       [](Row row) { return row.plain ? csv_limit(row.plain->speedup, &Interval::low) : ""; }},
      {"plain_speedup_high_95",
       [](Row row) { return row.plain ? csv_limit(row.plain->speedup, &Interval::high) : ""; }},
      {"plain_right_difference",
       [](Row row) { return row.plain ? csv_difference(row.plain->right) : ""; }},
      {"plain_right_difference_low_95",
       [](Row row) { return row.plain ? csv_limit(row.plain->right, &Interval::low) : ""; }},
      {"plain_right_difference_high_95",
       [](Row row) { return row.plain ? csv_limit(row.plain->right, &Interval::high) : ""; }},
      {"plain_valid_difference",
       [](Row row) { return row.plain ? csv_difference(row.plain->valid) : ""; }},
      {"plain_valid_difference_low_95",
       [](Row row) { return row.plain ? csv_limit(row.plain->valid, &Interval::low) : ""; }},
      {"plain_valid_difference_high_95",
       [](Row row) { return row.plain ? csv_limit(row.plain->valid, &Interval::high) : ""; }},
  };
}

}  // namespace

void write_csv(std::ostream& out, const Report& report) {
  std::vector<CsvColumn> columns = comparison_columns();
  for (const std::vector<CsvColumn>& more :
       {own_columns(), memory_csv_columns(), grammar_csv_columns(), quality_csv_columns()}) {
    columns.insert(columns.end(), more.begin(), more.end());
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    out << (i == 0 ? "" : ",") << columns[i].name;
    for (const std::string& key : i == 0 ? report.sweep_keys : Cells()) {
      out << "," << quote_csv(key);
    }
  }
  out << "\n";
  for (const SummaryRow& row : report.summary.rows) {
    for (size_t i = 0; i < columns.size(); ++i) {
      out << (i == 0 ? "" : ",") << columns[i].cell(row);
      for (const std::string& value : i == 0 ? sweep_cells(report, row) : Cells()) {
        out << "," << (value == "-" ? "" : quote_csv(value));
      }
    }
    out << "\n";
  }
}

}  // namespace specdec
