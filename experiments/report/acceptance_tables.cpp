#include "experiments/report/acceptance_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "experiments/report/report_text.h"

namespace specdec {
namespace {

/// "256 to 511", from the smallest length of a bucket.
std::string context_text(int64_t shortest) {
  return fmt::format("{} to {}", shortest, shortest == 0 ? kShortContext - 1 : 2 * shortest - 1);
}

}  // namespace

std::string tree_sentence(const Report& report) {
  std::vector<std::string> names;
  for (const SummaryRow& row : report.summary.rows) {
    if (row.category.empty() && has_trees(row.counts)) {
      names.push_back(row_name(report, row));
    }
  }
  return names.empty() ? ""
                       : fmt::format(
                             " Lower bounds for {}: trees, of which a path that ends above the "
                             "deepest leaf counts as rejected at the next position.",
                             fmt::join(names, "; "));
}

ReportTable positions_table(const Report& report) {
  ReportTable table{
      .id = "positions",
      .caption = std::string("Acceptance by position. Drafted: drafts at least this deep. Reached: "
                             "those of them with "
                             "all earlier positions accepted. Accepted of reached: with the 95 % "
                             "interval over the "
                             "questions that reached the position. Accepted of all drafts: "
                             "relative to all drafts, "
                             "including shorter ones; one plus its sum is the acceptance length.") +
                 tree_sentence(report),
      .header = {"strategy", "position", "drafted", "reached", "accepted", "accepted of reached",
                 "questions", "accepted of all drafts"},
      .rows = {},
      .styles = {}};
  for (const SummaryRow& row : report.summary.rows) {
    if (!row.category.empty()) {
      continue;
    }
    const auto unconditional = unconditional_acceptance(row.counts);
    for (size_t i = 0; i < unconditional.size(); ++i) {
      table.rows.push_back({row_name(report, row), fmt::format("{}", i + 1),
                            fmt::format("{}", row.counts.drafted_at[i]),
                            fmt::format("{}", row.counts.reached_at[i]),
                            fmt::format("{}", row.counts.accepted_at[i]), position_text(row, i),
                            fmt::format("{}", row.position_intervals.at(i).questions),
                            percent_text(unconditional[i])});
      table.styles.push_back(strategy_index(report, row.strategy));
    }
  }
  return table;
}

ReportTable contexts_table(const Report& report) {
  ReportTable table{
      .id = "contexts",
      .caption =
          "Acceptance by context length: of the steps that continue so many tokens, prompt and "
          "output together. Acceptance: accepted of drafted tokens, with the 95 % interval over "
          "the questions with drafts there.",
      .header = {"strategy", "context", "steps", "drafted", "accepted", "acceptance", "questions",
                 "tokens/step"},
      .rows = {},
      .names = 2,
      .styles = {}};
  std::set<int64_t> buckets;
  for (const SummaryRow& row : report.summary.rows) {
    if (!row.category.empty() || row.counts.drafted == 0) {
      continue;
    }
    for (const auto& [shortest, group] : row.groups.by_context) {
      buckets.insert(shortest);
      table.rows.push_back(
          {row_name(report, row), context_text(shortest), fmt::format("{}", group.steps),
           fmt::format("{}", group.drafted), fmt::format("{}", group.accepted),
           share_text(acceptance_rate(group), group.acceptance_interval),
           fmt::format("{}", group.questions), number_text(tokens_per_step(group), 2)});
      table.styles.push_back(strategy_index(report, row.strategy));
    }
  }
  if (buckets.size() < 2) {
    table.rows.clear();
    table.styles.clear();
  }
  return table;
}

}  // namespace specdec
