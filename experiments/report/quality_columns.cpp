#include "experiments/report/quality_columns.h"

#include <fmt/format.h>

#include <algorithm>

namespace specdec {
namespace {

std::string signed_interval_cell(double value, const std::optional<Interval>& interval,
                                 int decimals) {
  return interval ? fmt::format("{:+.{}f} ({:+.{}f} to {:+.{}f})", value, decimals, interval->low,
                                decimals, interval->high, decimals)
                  : fmt::format("{:+.{}f}", value, decimals);
}

std::string right_cell(const SummaryRow& row) { return percent_text(row.right_share); }

std::string points_cell(const std::optional<QualityComparison>& quality) {
  if (!quality) {
    return "-";
  }
  const double difference = 100.0 * (quality->share - quality->first_share);
  return signed_interval_cell(difference, interval_in_points(*quality), 1);
}
std::string right_difference_cell(const SummaryRow& row) { return points_cell(row.quality); }
std::string valid_cell(const SummaryRow& row) { return percent_text(row.valid_share); }
std::string valid_difference_cell(const SummaryRow& row) { return points_cell(row.validity); }
std::string plain_speedup_cell(const SummaryRow& row) {
  if (!row.plain) {
    return "1 (plain)";
  }
  const auto& speedup = row.plain->speedup;
  return speedup ? interval_text(speedup->ratio, speedup->interval) : "-";
}
std::string plain_right_cell(const SummaryRow& row) {
  return row.plain ? points_cell(row.plain->right) : "-";
}
std::string plain_valid_cell(const SummaryRow& row) {
  return row.plain ? points_cell(row.plain->valid) : "-";
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
       "Mean log-probability per token of the text under the target, in nats, from the raw softmax "
       "of its logits as in 'specdec score'; mean over questions. Only for lossy strategies and, "
       "for comparison, the first one.",
       false, log_prob_cell, ColumnTable::kQuality},
      {"log p/token, difference",
       "Difference from the first strategy on the same turns, in nats, with the 95 % interval of "
       "the paired difference over questions. Higher is not better: plain samples have the "
       "target's own mean, and a higher value means mode-seeking text.",
       true, log_prob_difference_cell, ColumnTable::kQuality},
      {"TV at least",
       "Lossy strategies that sample: a lower bound (95 % confidence) on the total variation "
       "distance (0 to 1) between the strategy's and the target's distribution of the next token, "
       "averaged over tokens. It follows from how often the text takes tokens that the drafter "
       "rates above the target. 0 does not prove that there is no loss.",
       true, total_variation_cell, ColumnTable::kQuality},
  };
  return columns;
}

/// Columns of runs with a scorer.
const std::vector<ReportColumn>& scorer_columns() {
  static const std::vector<ReportColumn> columns = {
      {"correct",
       "Share of scored answers that are correct according to the scorer in the prompts file.",
       true, right_cell, ColumnTable::kQuality},
      {"correct, difference (points)",
       "Difference from the first strategy's share of correct answers on the same turns, in "
       "percentage points: mean over questions, with the 95 % interval of the paired difference.",
       true, right_difference_cell, ColumnTable::kQuality},
  };
  return columns;
}

/// Columns of runs whose prompts have schemas.
const std::vector<ReportColumn>& validity_columns() {
  static const std::vector<ReportColumn> columns = {
      {"valid",
       "Share of answers that satisfy the JSON Schema of their prompt, as a whole, whether or not "
       "a grammar made them. Answers whose schema cannot be checked are left out.",
       true, valid_cell, ColumnTable::kQuality},
      {"valid, difference (points)",
       "Difference from the first strategy's share of valid answers on the same turns, in "
       "percentage points: mean over questions, with the 95 % interval of the paired difference.",
       true, valid_difference_cell, ColumnTable::kQuality},
  };
  return columns;
}

constexpr const char* kPlainArm =
    " The plain arm is the first strategy at the first point of the sweep, whose model, format, "
    "adapters and grammar the other points replace.";

/// Columns of sweeps that change what the first strategy writes.
std::vector<ReportColumn> plain_columns() {
  const std::string differs =
      "Difference from the plain arm's share on the same turns, in percentage points, with the 95 "
      "% interval of the paired difference over questions.";
  return {
      {"speed-up, plain arm", std::string("Decoding speed relative to the plain arm.") + kPlainArm,
       true, plain_speedup_cell, ColumnTable::kQuality},
      {"correct, plain arm (points)", differs + kPlainArm, true, plain_right_cell,
       ColumnTable::kQuality},
      {"valid, plain arm (points)", differs + kPlainArm, true, plain_valid_cell,
       ColumnTable::kQuality}};
}

}  // namespace

std::vector<ReportColumn> quality_columns(const Report& report) {
  const auto any = [&](bool (*has)(const SummaryRow& row)) {
    return std::any_of(report.summary.rows.begin(), report.summary.rows.end(), has);
  };
  std::vector<ReportColumn> columns;
  const auto add = [&](const std::vector<ReportColumn>& more) {
    columns.insert(columns.end(), more.begin(), more.end());
  };
  const bool scored = any([](const SummaryRow& row) { return row.right_share.has_value(); });
  const bool checked = any([](const SummaryRow& row) { return row.valid_share.has_value(); });
  if (scored) {
    add(scorer_columns());
  }
  if (checked) {
    add(validity_columns());
  }
  if ((scored || checked) && any([](const SummaryRow& row) { return row.plain.has_value(); })) {
    std::vector<ReportColumn> plain = plain_columns();
    std::erase_if(plain, [&](const ReportColumn& column) {
      return (column.cell == plain_right_cell && !scored) ||
             (column.cell == plain_valid_cell && !checked);
    });
    add(plain);
  }
  if (any([](const SummaryRow& row) { return row.log_probs.has_value(); })) {
    add(fidelity_columns());
  }
  return columns;
}

}  // namespace specdec
