#include "experiments/report/spec_bench.h"

#include <algorithm>
#include <array>
#include <functional>
#include <ostream>

#include "experiments/report/conditions.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

constexpr std::array<const char*, 8> kMtBench = {
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"};

struct SpecBenchTable {
  const char* title;
  const char* definition;
  std::function<std::string(const SummaryRow& row)> cell;
};

/// "1.00" of the first strategy.
std::string ratio_cell(const SummaryRow& row, const std::optional<Speedup>& speedup) {
  return row.is_first ? "1.00"
                      : number_text(speedup ? std::optional(speedup->of_totals) : std::nullopt, 2);
}

const std::vector<SpecBenchTable>& tables() {
  using Row = const SummaryRow&;
  static const std::vector<SpecBenchTable> all = {
      {"Mean accepted tokens",
       "Tokens that a step adds, correction or bonus token included: committed / steps, which is "
       "tokens/step elsewhere in specdec. The acceptance length, 1 + accepted / drafts, leaves out "
       "steps without a draft.",
       [](Row row) { return number_text(tokens_per_step(row.counts), 2); }},
      {"Questions",
       "Questions that both this and the first strategy answered; the others by reason, so that "
       "figures over different questions are not compared.",
       questions_text},
      {"Tokens per second", "All new tokens / (prefill and decode time), of totals.",
       [](Row row) { return number_text(total_tokens_per_second(row.counts), 1); }},
      {"Speed-up",
       "Seconds of prefill and decoding per new token, as Spec-Bench's wall_time has both, of the "
       "first strategy / of this one, of totals over the questions that both have.",
       [](Row row) { return ratio_cell(row, row.end_to_end); }},
      {"Speed-up of decoding alone", "The same of decode seconds per token of the steps.",
       [](Row row) { return ratio_cell(row, row.speedup); }},
      {"Tokens per second, as speed.py has it",
       "Mean over questions of each one's tokens / time, first repeat.",
       [](Row row) {
         return row.spec_bench ? number_text(row.spec_bench->tokens_per_second, 1) : "-";
       }},
      {"Speed-up, as speed.py has it",
       "Ratio of two such means; the baseline's tokens are counted by encoding its text again, so "
       "the baseline itself need not have 1.",
       [](Row row) { return row.spec_bench ? number_text(row.spec_bench->speedup, 2) : "-"; }},
  };
  return all;
}

std::string markdown_text(const std::string& text) {
  return escape_markdown_cell(one_line(text, 80));
}

void write_one(std::ostream& out, const SpecBenchTable& table, const Report& report,
               const Summary& summary, const std::vector<std::string>& tasks) {
  out << "## " << table.title << "\n\n" << table.definition << "\n\n| strategy |";
  for (const auto& task : tasks) {
    out << " " << (task.empty() ? "overall" : markdown_text(task)) << " |";
  }
  out << "\n|---|";
  for (size_t i = 0; i < tasks.size(); ++i) {
    out << "---|";
  }
  out << "\n";
  for (const SummaryRow& first : summary.rows) {
    if (!first.category.empty()) {
      continue;
    }
    out << "| " << markdown_text(arm_name(summary.rows, first.strategy, first.sweep_point))
        << (is_lossy_row(report, first) ? " (lossy) |" : " |");
    for (const auto& task : tasks) {
      const auto row =
          std::find_if(summary.rows.begin(), summary.rows.end(), [&](const SummaryRow& other) {
            return other.strategy == first.strategy && other.sweep_point == first.sweep_point &&
                   other.category == task;
          });
      out << " " << (row == summary.rows.end() ? "-" : table.cell(*row)) << " |";
    }
    out << "\n";
  }
  out << "\n";
}

}  // namespace

std::string spec_bench_task(const std::string& category) {
  const bool mt_bench = std::find(kMtBench.begin(), kMtBench.end(), category) != kMtBench.end();
  return mt_bench ? "mt_bench" : category;
}

void write_spec_bench(std::ostream& out, const Report& report,
                      std::span<const GenerationRecord> records) {
  const Summary summary =
      summarize(records, {.category_of = spec_bench_task, .condition_of = conditions_by(report)});
  std::vector<std::string> tasks;
  for (const SummaryRow& row : summary.rows) {
    if (!row.category.empty() &&
        std::find(tasks.begin(), tasks.end(), row.category) == tasks.end()) {
      tasks.push_back(row.category);
    }
  }
  tasks.emplace_back();  // all
  out << "# By task, as Spec-Bench's tables are\n\n";
  for (const SpecBenchTable& table : tables()) {
    write_one(out, table, report, summary, tasks);
  }
}

}  // namespace specdec
