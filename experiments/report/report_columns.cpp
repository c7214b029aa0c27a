#include <fmt/format.h>

#include <algorithm>

#include "experiments/report/report_text.h"

namespace specdec {
namespace {

std::string interval_cell(std::optional<double> value, const std::optional<Interval>& interval) {
  return interval ? fmt::format("{} ({:.2f} to {:.2f})", number_text(value, 2), interval->low,
                                interval->high)
                  : number_text(value, 2);
}

std::string speedup_cell(const SummaryRow& row, const std::optional<Speedup>& speedup) {
  if (row.is_first) {
    return "1 (reference)";
  }
  return speedup ? interval_cell(speedup->ratio, speedup->interval) : "-";
}

std::string of_totals_cell(const SummaryRow& row) {
  if (row.is_first) {
    return "1 / 1";
  }
  return fmt::format(
      "{} / {}", number_text(row.speedup ? std::optional(row.speedup->of_totals) : std::nullopt, 2),
      number_text(row.end_to_end ? std::optional(row.end_to_end->of_totals) : std::nullopt, 2));
}
std::string questions_cell(const SummaryRow& row) {
  return fmt::format("{}", row.speedup ? row.speedup->questions : row.questions);
}
std::string decode_speed_cell(const SummaryRow& row) {
  return number_text(decode_tokens_per_second(row.counts), 1);
}
std::string total_speed_cell(const SummaryRow& row) {
  return number_text(total_tokens_per_second(row.counts), 1);
}
std::string acceptance_cell(const SummaryRow& row) {
  return percent_text(acceptance_rate(row.counts));
}
std::string tokens_per_step_cell(const SummaryRow& row) {
  return interval_cell(tokens_per_step(row.counts), row.tokens_per_step_interval);
}
std::string accepted_per_step_cell(const SummaryRow& row) {
  return number_text(accepted_per_step(row.counts), 2);
}
std::string acceptance_length_cell(const SummaryRow& row) {
  return number_text(acceptance_length(row.counts), 2);
}
std::string drafted_per_step_cell(const SummaryRow& row) {
  return number_text(drafted_per_step(row.counts), 2);
}
std::string split_cell(const SummaryRow& row) {
  const auto split = time_split(row.counts);
  return split ? fmt::format("{:.0f} / {:.0f} / {:.0f} %", 100.0 * split->draft,
                             100.0 * split->verify, 100.0 * split->other)
               : "-";
}
std::string generations_cell(const SummaryRow& row) {
  return fmt::format("{}", row.counts.generations);
}
std::string tokens_cell(const SummaryRow& row) { return fmt::format("{}", row.counts.tokens); }

std::string freedom_cell(const SummaryRow& row) {
  return fmt::format("{} / {} / {}", percent_text(acceptance_rate(row.counts, Freedom::kFree)),
                     percent_text(acceptance_rate(row.counts, Freedom::kConstrained)),
                     percent_text(acceptance_rate(row.counts, Freedom::kForced)));
}
std::string complete_cell(const SummaryRow& row) {
  return percent_text(complete_share(row.counts));
}
std::string mask_cell(const SummaryRow& row) {
  const auto seconds = mask_seconds_per_token(row.counts);
  return seconds ? number_text(1e6 * *seconds, 1) : "-";
}
std::string log_allowed_cell(const SummaryRow& row) {
  return number_text(log_allowed_per_token(row.counts), 3);
}

/// Columns of runs under a grammar.
const std::vector<ReportColumn>& grammar_columns() {
  static const std::vector<ReportColumn> columns = {
      {"free / constrained / forced",
       "Acceptance of the drafted tokens that stand where the grammar allows more than half of the "
       "vocabulary, less, or one token alone.",
       true, freedom_cell, ColumnTable::kGrammar},
      {"complete",
       "Outputs that the grammar ended: whole texts of its language. Others were cut off by "
       "max_new_tokens or another stop.",
       true, complete_cell, ColumnTable::kGrammar},
      {"mask us/token", "Finding the masks of the verified tokens, for each token added.", true,
       mask_cell, ColumnTable::kGrammar},
      {"log Z/token",
       "Logarithm of the mass that the masks left of the target's distribution, a token's mean. 0: "
       "the target wrote the language by itself.",
       true, log_allowed_cell, ColumnTable::kGrammar},
  };
  return columns;
}

std::string signed_interval_cell(double value, const std::optional<Interval>& interval,
                                 int decimals) {
  return interval ? fmt::format("{:+.{}f} ({:+.{}f} to {:+.{}f})", value, decimals, interval->low,
                                decimals, interval->high, decimals)
                  : fmt::format("{:+.{}f}", value, decimals);
}

std::string right_cell(const SummaryRow& row) { return percent_text(row.right_share); }

std::string right_difference_cell(const SummaryRow& row) {
  if (!row.quality) {
    return "-";
  }
  const QualityComparison& quality = *row.quality;
  const double difference = 100.0 * (quality.share - quality.first_share);
  return signed_interval_cell(difference, interval_in_points(quality), 1);
}

std::string log_prob_cell(const SummaryRow& row) { return number_text(row.log_prob, 3); }

std::string log_prob_difference_cell(const SummaryRow& row) {
  return row.log_probs ? signed_interval_cell(row.log_probs->difference, row.log_probs->interval, 3)
                       : "-";
}

std::string total_variation_cell(const SummaryRow& row) {
  return number_text(row.total_variation_bound, 3);
}

/// Columns of runs with a lossy strategy whose texts were measured.
const std::vector<ReportColumn>& fidelity_columns() {
  static const std::vector<ReportColumn> columns = {
      {"log p/token",
       "Of lossy strategies, and of the first one to compare: log-probability of a token of the "
       "text by the target, in nats, by its logits alone as 'specdec score' has it; mean over "
       "questions.",
       false, log_prob_cell, ColumnTable::kQuality},
      {"log p/token, difference",
       "How much more than the first strategy's, on the same turns, with the 95 % interval of the "
       "paired difference over questions. Higher is not better: plain samples have the target's "
       "own mean, and what is above it seeks the modes.",
       true, log_prob_difference_cell, ColumnTable::kQuality},
      {"TV at least",
       "Of lossy strategies that sample: the total variation between the distribution of a token, "
       "given the text before, and the target's, in the mean over tokens. A lower bound at 95 % "
       "confidence, from how often the text takes what its drafter rates above the target; 0 is no "
       "proof that there is none.",
       true, total_variation_cell, ColumnTable::kQuality},
  };
  return columns;
}

/// Columns of every run.
const std::vector<ReportColumn>& speed_columns() {
  static const std::vector<ReportColumn> columns = {
      {"speed-up",
       "Decoding, how many times faster than the first strategy: the geometric mean over questions "
       "of its decode seconds per token divided by this strategy's. In brackets the 95 % interval "
       "over questions (Student's t, of the logarithms): a question with all its turns and repeats "
       "counts once, and fewer than 8 have no interval. An interval that contains 1 shows no "
       "difference.",
       true, speedup_text},
      {"end to end", "The same for the whole request, the prompt's prefill included.", true,
       end_to_end_text},
      {"of totals",
       "Both speed-ups once more, as ratios of total seconds per token: long answers weigh more.",
       false, of_totals_cell, ColumnTable::kMore},
      {"questions", "That the two strategies share: what the intervals are made from.", true,
       questions_cell},
      {"tokens/s",
       "Tokens that the steps added, divided by the time of the steps; without the prompt's "
       "prefill and the token that it yields.",
       true, decode_speed_cell},
      {"with prefill", "All new tokens, divided by the time of prefill and steps together.", false,
       total_speed_cell, ColumnTable::kMore},
      {"tokens/step",
       "Tokens added per forward of the target, the correction or bonus token included, with the "
       "95 % interval over questions. Plain decoding has 1.",
       true, tokens_per_step_cell},
      {"accepted/step", "The same without that token: drafted tokens accepted per forward.", false,
       accepted_per_step_cell, ColumnTable::kMore},
      {"acceptance length",
       "Also called block efficiency: 1 + accepted tokens per draft, over the steps that had a "
       "draft, before any stop cuts the output.",
       false, acceptance_length_cell},
      {"drafted/step", "Tokens proposed per forward of the target.", false, drafted_per_step_cell},
      {"acceptance",
       "Accepted tokens of all drafted ones. Longer drafts lower it, since everything after a "
       "rejected token is lost with it.",
       true, acceptance_cell},
      {"draft / verify / other",
       "Where the decode time goes: making drafts, the target's forward, and the rest "
       "(distributions, verification, cache bookkeeping).",
       true, split_cell},
      {"generations", "How many were measured.", false, generations_cell, ColumnTable::kMore},
      {"tokens", "New tokens in all of them.", false, tokens_cell, ColumnTable::kMore},
  };
  return columns;
}

/// Columns of runs with a scorer.
const std::vector<ReportColumn>& quality_columns() {
  static const std::vector<ReportColumn> columns = {
      {"right", "Answers that the prompts file's scorer found right.", true, right_cell,
       ColumnTable::kQuality},
      {"right, difference (points)",
       "Right answers of 100 more than the first strategy's, on the same turns: mean over "
       "questions, with the 95 % interval of the paired difference.",
       true, right_difference_cell, ColumnTable::kQuality},
  };
  return columns;
}

}  // namespace

std::string speedup_text(const SummaryRow& row) { return speedup_cell(row, row.speedup); }

std::string end_to_end_text(const SummaryRow& row) { return speedup_cell(row, row.end_to_end); }

std::string position_text(const SummaryRow& row, size_t position) {
  const auto rate = conditional_acceptance(row.counts).at(position);
  const auto& interval = row.position_intervals.at(position).interval;
  return interval ? fmt::format("{} ({:.1f} to {:.1f})", percent_text(rate), 100.0 * interval->low,
                                100.0 * interval->high)
                  : percent_text(rate);
}

std::vector<ReportColumn> report_columns(const Report& report) {
  std::vector<ReportColumn> columns = speed_columns();
  if (std::any_of(report.summary.rows.begin(), report.summary.rows.end(),
                  [](const SummaryRow& row) { return row.right_share.has_value(); })) {
    const auto& more = quality_columns();
    columns.insert(columns.end(), more.begin(), more.end());
  }
  if (std::any_of(report.summary.rows.begin(), report.summary.rows.end(),
                  [](const SummaryRow& row) { return row.log_probs.has_value(); })) {
    const auto& more = fidelity_columns();
    columns.insert(columns.end(), more.begin(), more.end());
  }
  if (std::any_of(report.summary.rows.begin(), report.summary.rows.end(),
                  [](const SummaryRow& row) { return row.counts.masked_tokens > 0; })) {
    const auto& more = grammar_columns();
    columns.insert(columns.end(), more.begin(), more.end());
  }
  return columns;
}

}  // namespace specdec
