#include "experiments/report/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

namespace specdec {
namespace {

constexpr int64_t kFewPrompts = 10;

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
  return number_text(tokens_per_step(row.counts), 2);
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
       true, freedom_cell},
      {"complete",
       "Outputs that the grammar ended: whole texts of its language. Others were cut off by "
       "max_new_tokens or another stop.",
       true, complete_cell},
      {"mask us/token", "Finding the masks of the verified tokens, for each token added.", true,
       mask_cell},
      {"log Z/token",
       "Logarithm of the mass that the masks left of the target's distribution, a token's mean. 0: "
       "the "
       "target wrote the language by itself.",
       true, log_allowed_cell},
  };
  return columns;
}

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

void add_prompt_notes(const Report& report, std::vector<std::string>& notes) {
  int64_t fewest = kFewPrompts;
  std::vector<std::string> unclear;
  for (const SummaryRow& row : report.summary.rows) {
    if (!row.category.empty() || !row.speedup) {
      continue;
    }
    fewest = std::min(fewest, row.speedup->prompts);
    const auto& interval = row.speedup->interval;
    if (interval && interval->low <= 1.0 && interval->high >= 1.0) {
      unclear.push_back(row_name(row));
    }
  }
  if (fewest < kFewPrompts) {
    notes.push_back(fmt::format(
        "Few prompts: {} in the smallest comparison. Intervals from so few are rough, and tend to "
        "be too narrow.",
        fewest));
  }
  for (const std::string& name : unclear) {
    notes.push_back(fmt::format(
        "The interval of {} contains 1: these prompts do not show that it is faster or slower.",
        name));
  }
}

}  // namespace

std::string speedup_text(const SummaryRow& row) {
  if (row.is_first) {
    return "1 (reference)";
  }
  if (!row.speedup) {
    return "-";
  }
  const auto& interval = row.speedup->interval;
  return interval ? fmt::format("{:.2f} ({:.2f} to {:.2f})", row.speedup->ratio, interval->low,
                                interval->high)
                  : fmt::format("{:.2f}", row.speedup->ratio);
}

std::vector<ReportColumn> report_columns(const Report& report) {
  std::vector<ReportColumn> columns = {
      {"speed-up",
       "How many times faster than the first strategy: its decode seconds per token, divided by "
       "this strategy's, both summed over the prompts that the two share. In brackets the 95 % "
       "interval of a paired bootstrap over prompts: with other prompts of the same kind the ratio "
       "would mostly lie in there. An interval that contains 1 shows no difference.",
       true, speedup_text},
      {"tokens/s",
       "Tokens that the steps added, divided by the time of the steps; without the prompt's "
       "prefill "
       "and the token that it yields.",
       true, decode_speed_cell},
      {"with prefill", "All new tokens, divided by the time of prefill and steps together.", false,
       total_speed_cell},
      {"tokens/step",
       "Tokens added per forward of the target, the correction or bonus token included. Plain "
       "decoding has 1.",
       true, tokens_per_step_cell},
      {"accepted/step", "The same without that token: drafted tokens accepted per forward.", false,
       accepted_per_step_cell},
      {"acceptance length",
       "Also called block efficiency: 1 + accepted tokens per draft, over the steps that had a "
       "draft, before any stop cuts the output.",
       false, acceptance_length_cell},
      {"drafted/step", "Tokens proposed per forward of the target.", true, drafted_per_step_cell},
      {"acceptance",
       "Accepted tokens of all drafted ones. Longer drafts lower it, since everything after a "
       "rejected token is lost with it.",
       true, acceptance_cell},
      {"draft / verify / other",
       "Where the decode time goes: making drafts, the target's forward, and the rest "
       "(distributions, "
       "verification, cache bookkeeping).",
       true, split_cell},
      {"generations", "How many were measured.", false, generations_cell},
      {"tokens", "New tokens in all of them.", false, tokens_cell},
  };
  if (std::any_of(report.summary.rows.begin(), report.summary.rows.end(),
                  [](const SummaryRow& row) { return row.counts.masked_tokens > 0; })) {
    const auto& more = grammar_columns();
    columns.insert(columns.end(), more.begin(), more.end());
  }
  return columns;
}

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
  std::vector<std::string> notes;
  for (const ReportStrategy& strategy : report.strategies) {
    if (strategy.lossy) {
      notes.push_back(fmt::format(
          "{} is lossy: its output is not the target's, so its speed is bought with quality that "
          "this report does not measure.",
          strategy.name));
    }
    if (!strategy.reproducible) {
      notes.push_back(
          fmt::format("{} decides from live timing: another run may draft, and with sampling "
                      "answer, otherwise.",
                      strategy.name));
    }
  }
  add_prompt_notes(report, notes);
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

}  // namespace specdec
