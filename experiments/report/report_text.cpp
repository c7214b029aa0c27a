#include "experiments/report/report_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

#include "experiments/report/headline.h"

namespace specdec {
namespace {

const ReportStrategy* find_strategy(const Report& report, const std::string& name) {
  const size_t index = strategy_index(report, name);
  return index < report.strategies.size() ? &report.strategies[index] : nullptr;
}

void add_grammar_notes(const Report& report, std::vector<std::string>& notes) {
  for (const SummaryRow& row : report.summary.rows) {
    if (row.category.empty() && row.counts.mask_fallbacks > 0) {
      notes.push_back(fmt::format(
          "{} took {} tokens where no way on was found in the tokenizer's own cut; their outputs "
          "may be cut otherwise.",
          row_name(row), row.counts.mask_fallbacks));
    }
  }
}

void add_scorer_notes(const Report& report, std::vector<std::string>& notes) {
  for (const SummaryRow& row : report.summary.rows) {
    if (row.category.empty() && row.unscored > 0) {
      notes.push_back(fmt::format(
          "{} of the {} answers of {} {} not scored: the scorer program took longer "
          "than quality.scorer_seconds. The share of right answers and the comparison "
          "leave them out.",
          row.unscored, row.counts.generations, row_name(row), row.unscored == 1 ? "was" : "were"));
    }
  }
}

void add_question_notes(const Report& report, std::vector<std::string>& notes) {
  int64_t fewest = kFewestQuestions;
  for (const SummaryRow& row : report.summary.rows) {
    if (row.category.empty() && row.speedup) {
      fewest = std::min(fewest, row.speedup->questions);
    }
  }
  if (fewest < kFewestQuestions) {
    notes.push_back(fmt::format(
        "Few questions: {} in the smallest comparison. Below {} there are no intervals, since none "
        "would be right; turns and repeats of a question do not count as more.",
        fewest, kFewestQuestions));
  }
  for (const SummaryRow& row : report.summary.rows) {
    const auto interval = row.speedup ? row.speedup->interval : std::nullopt;
    if (row.category.empty() && interval && interval->low <= 1.0 && interval->high >= 1.0) {
      notes.push_back(
          fmt::format("The interval of {} contains 1: these questions do not show that it is "
                      "faster or slower.",
                      row_name(row)));
    }
  }
}

}  // namespace

std::vector<const SummaryRow*> fastest_rows(const Report& report) {
  std::vector<const SummaryRow*> fastest;
  for (const SummaryRow& row : report.summary.rows) {
    if (!row.category.empty()) {
      continue;
    }
    const auto found = std::find_if(fastest.begin(), fastest.end(), [&](const SummaryRow* other) {
      return other->strategy == row.strategy;
    });
    if (found == fastest.end()) {
      fastest.push_back(&row);
    } else if (decode_tokens_per_second(row.counts).value_or(0.0) >
               decode_tokens_per_second((*found)->counts).value_or(0.0)) {
      *found = &row;
    }
  }
  return fastest;
}

size_t strategy_index(const Report& report, const std::string& name) {
  const auto found =
      std::find_if(report.strategies.begin(), report.strategies.end(),
                   [&](const ReportStrategy& strategy) { return strategy.name == name; });
  return static_cast<size_t>(found - report.strategies.begin());
}

std::string row_name(const SummaryRow& row) {
  return row.sweep_point.empty() ? row.strategy : row.strategy + ", " + row.sweep_point;
}

std::vector<std::string> reader_notes(const Report& report) {
  std::vector<std::string> notes = measurement_warnings(report);
  for (const ReportStrategy& strategy : report.strategies) {
    if (strategy.lossy) {
      const auto measured = quality_notes(report, strategy);
      notes.insert(notes.end(), measured.begin(), measured.end());
    }
    if (!strategy.uncertified.empty()) {
      notes.push_back(fmt::format(
          "{} is unverified: {} was never certified, so nobody knows whether its output is the "
          "target's; 'specdec certify' tests it.",
          strategy.name, fmt::join(strategy.uncertified, ", ")));
    }
    if (!strategy.reproducible) {
      notes.push_back(
          fmt::format("{} decides from live timing: another run may draft, and with sampling "
                      "answer, otherwise.",
                      strategy.name));
    }
  }
  add_question_notes(report, notes);
  add_scorer_notes(report, notes);
  add_grammar_notes(report, notes);
  if (report.environment.commit.ends_with("+changes")) {
    notes.emplace_back("The program was built from a tree with uncommitted changes.");
  }
  if (report.environment.cores > 0 && report.environment.threads > report.environment.cores) {
    notes.push_back(fmt::format("{} threads shared {} cores: timings are noisy.",
                                report.environment.threads, report.environment.cores));
  }
  notes.insert(notes.end(), report.notes.begin(), report.notes.end());
  return notes;
}

std::vector<std::string> divergence_lines(const Report& report) {
  struct Group {
    int64_t count = 0;
    double largest_gap = 0.0;
  };
  std::map<std::string, Group> groups;
  for (const Divergence& divergence : report.summary.divergences) {
    Group& group = groups[divergence.key.strategy];
    ++group.count;
    // NaN where the first strategy's output had ended: no gap to compare.
    group.largest_gap = std::fmax(group.largest_gap, divergence.gap_first);
  }
  std::vector<std::string> lines;
  for (const auto& [name, group] : groups) {
    const ReportStrategy* strategy = find_strategy(report, name);
    lines.push_back(fmt::format(
        "{}: {} of its generations left the first strategy's tokens; largest gap there {:.2g}{}",
        name, group.count, group.largest_gap,
        strategy != nullptr && strategy->lossy ? " (expected: it is lossy)" : ""));
  }
  return lines;
}

std::string quote_csv(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + "\"";
}

std::optional<Interval> interval_in_points(const QualityComparison& quality) {
  return quality.interval ? std::optional(Interval{100.0 * quality.interval->low,
                                                   100.0 * quality.interval->high})
                          : std::nullopt;
}

}  // namespace specdec
