#include "experiments/report/report_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

#include "experiments/report/conditions.h"
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
          "{}: {} tokens were chosen where the grammar has no canonical tokenization to go on "
          "with; their texts may be tokenized differently from what the tokenizer itself would do.",
          row_name(report, row), row.counts.mask_fallbacks));
    }
  }
}

void add_scorer_notes(const Report& report, std::vector<std::string>& notes) {
  std::vector<std::string> counts;
  for (const SummaryRow& row : report.summary.rows) {
    if (row.category.empty() && row.unscored > 0) {
      counts.push_back(fmt::format("{} of {} by {}", row.unscored, row.counts.generations,
                                   row_name(report, row)));
    }
  }
  if (!counts.empty()) {
    notes.push_back(fmt::format(
        "Some answers were not scored, because the scorer program took longer than "
        "quality.scorer_seconds: {}. Shares of correct answers and comparisons leave them out.",
        fmt::join(counts, "; ")));
  }
}

/// Which strategies have fewer questions than others, and what may be compared then.
void add_missing_notes(const Report& report, std::vector<std::string>& notes) {
  std::vector<std::string> differing;
  for (const SummaryRow& row : report.summary.rows) {
    if (row.category.empty() && (row.missing.left_out() > 0 || row.missing.in_part > 0)) {
      differing.push_back(fmt::format("{} {}", row_name(report, row), questions_text(row)));
    }
  }
  if (!differing.empty()) {
    notes.push_back(fmt::format(
        "Not all have the same questions ({}). Speed-ups and differences are over those that a "
        "strategy shares with the first one; other columns, as tokens/s, are over all that it "
        "answered, so that they do not compare.",
        fmt::join(differing, "; ")));
  }
}

void add_question_notes(const Report& report, std::vector<std::string>& notes) {
  int64_t fewest = kMinQuestions;
  for (const SummaryRow& row : report.summary.rows) {
    if (row.category.empty() && row.speedup) {
      fewest = std::min(fewest, row.speedup->questions);
    }
  }
  if (fewest < kMinQuestions) {
    notes.push_back(fmt::format(
        "Few questions: the smallest comparison has {}. Below {} no interval is given, since it "
        "would be unreliable; turns and repeats of a question are not independent observations.",
        fewest, kMinQuestions));
  }
  std::vector<std::string> undecided;
  for (const SummaryRow& row : report.summary.rows) {
    const auto interval = row.speedup ? row.speedup->interval : std::nullopt;
    if (row.category.empty() && interval && interval->low <= 1.0 && interval->high >= 1.0) {
      undecided.push_back(row_name(report, row));
    }
  }
  if (!undecided.empty()) {
    notes.push_back(fmt::format(
        "The 95 % interval of the speed-up contains 1, so these questions do not show a difference "
        "from the first strategy: {}.",
        fmt::join(undecided, "; ")));
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
      return other->strategy == row.strategy &&
             condition_of(report, other->sweep_point) == condition_of(report, row.sweep_point);
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

bool is_swept(std::span<const SummaryRow> rows, const std::string& strategy) {
  const SummaryRow* first = nullptr;
  return std::any_of(rows.begin(), rows.end(), [&](const SummaryRow& row) {
    if (row.strategy != strategy) {
      return false;
    }
    first = first == nullptr ? &row : first;
    return row.sweep_point != first->sweep_point;
  });
}

std::string arm_name(std::span<const SummaryRow> rows, const std::string& strategy,
                     const std::string& sweep_point) {
  return !sweep_point.empty() && is_swept(rows, strategy) ? strategy + ", " + sweep_point
                                                          : strategy;
}

std::string row_name(const Report& report, const SummaryRow& row) {
  return arm_name(report.summary.rows, row.strategy, row.sweep_point);
}

std::vector<std::string> reader_notes(const Report& report) {
  std::vector<std::string> notes = measurement_warnings(report);
  for (const ReportStrategy& strategy : report.strategies) {
    if (strategy.lossy) {
      const auto measured = quality_notes(report, strategy);
      notes.insert(notes.end(), measured.begin(), measured.end());
    }
    if (!strategy.uncertified.empty()) {
      notes.push_back(
          fmt::format("{} is unverified: {} was never certified, so its output may not follow the "
                      "target's distribution; test it with 'specdec certify'.",
                      strategy.name, fmt::join(strategy.uncertified, ", ")));
    }
    if (!strategy.reproducible) {
      notes.push_back(
          fmt::format("{} adapts to live timing: another run may draft differently and, when "
                      "sampling, give different answers.",
                      strategy.name));
    }
  }
  add_missing_notes(report, notes);
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
    lines.push_back(
        fmt::format("{}: {} generations diverge from the first strategy's tokens; the largest "
                    "logit gap where they do is {:.2g}{}",
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
