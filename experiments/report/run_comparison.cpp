#include "experiments/report/run_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "experiments/report/report_page.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

/// The names of the two sides while summarize() compares them.
constexpr const char* kSideA = "A";
constexpr const char* kSideB = "B";
/// The two columns that a terminal is too narrow for begin here.
constexpr int64_t kAcceptanceColumn = 9;
/// Most differences that are shown; JSON has all.
constexpr size_t kDifferencesInTerminal = 10;
constexpr size_t kDifferencesOnPage = 100;

GenerationRecord as_side(const GenerationRecord& record, const char* side) {
  GenerationRecord copy = record;
  copy.key.strategy = side;
  copy.key.sweep_point.clear();
  return copy;
}

std::map<GenerationKey, const GenerationRecord*> by_key(std::span<const GenerationRecord> records) {
  std::map<GenerationKey, const GenerationRecord*> found;
  for (const GenerationRecord& record : records) {
    found[record.key] = &record;
  }
  return found;
}

std::string full_name(const std::string& strategy, const std::string& sweep_point) {
  return sweep_point.empty() ? strategy : strategy + ", " + sweep_point;
}

/// Arms were matched by their full names; a strategy that no sweep touches goes by its own.
void shorten_names(std::vector<ComparedArm>& arms) {
  std::vector<SummaryRow> rows;
  for (const ComparedArm& arm : arms) {
    rows.push_back(arm.a ? *arm.a : arm.b.value());
  }
  for (size_t i = 0; i < arms.size(); ++i) {
    arms[i].name = arm_name(rows, rows[i].strategy, rows[i].sweep_point);
  }
}

/// Records of both runs under the names of the sides, by arm.
using SharedRecords = std::map<std::string, std::vector<GenerationRecord>>;

SharedRecords pair_records(const ComparedRun& a, const ComparedRun& b, RunComparison& comparison) {
  const auto in_b = by_key(b.records);
  SharedRecords shared;
  for (const GenerationRecord& record : a.records) {
    const auto other = in_b.find(record.key);
    if (other == in_b.end()) {
      continue;
    }
    if (other->second->prompt_tokens != record.prompt_tokens) {
      ++comparison.unlike;
      continue;
    }
    ++comparison.shared;
    auto& own = shared[full_name(record.key.strategy, record.key.sweep_point)];
    own.push_back(as_side(record, kSideA));
    own.push_back(as_side(*other->second, kSideB));
  }
  return shared;
}

ComparedArm& arm_named(std::vector<ComparedArm>& arms, const std::string& name) {
  const auto found = std::find_if(arms.begin(), arms.end(),
                                  [&](const ComparedArm& arm) { return arm.name == name; });
  return found != arms.end() ? *found : arms.emplace_back(ComparedArm{.name = name});
}

bool is_out_of_room(const GenerationRecord& record) {
  const StopReason reason = record.generation.stop_reason;
  return reason == StopReason::kMaxNewTokens || reason == StopReason::kContextFull;
}

/// Whether the side that ended first did so for want of room, not by its text.
bool is_cut_short(const Divergence& divergence, std::span<const GenerationRecord> records) {
  if (divergence.token_first != -1 && divergence.token_other != -1) {
    return false;
  }
  const char* shorter = divergence.token_first == -1 ? kSideA : kSideB;
  return std::any_of(records.begin(), records.end(), [&](const GenerationRecord& record) {
    return record.key.strategy == shorter && record.key.prompt_id == divergence.key.prompt_id &&
           record.key.repeat == divergence.key.repeat && is_out_of_room(record);
  });
}

void compare_arm(const std::vector<GenerationRecord>& records, ComparedArm& arm) {
  const Summary summary = summarize(records);
  for (const SummaryRow& row : summary.rows) {
    if (row.category.empty()) {
      (row.strategy == kSideA ? arm.shared_a : arm.shared_b) = row;
    }
  }
  arm.b_over_a = arm.shared_b ? arm.shared_b->speedup : std::nullopt;
  arm.texts = summary.compared;
  for (const Divergence& divergence : summary.divergences) {
    if (is_cut_short(divergence, records)) {
      ++arm.cut_short;
    } else {
      arm.unlike.push_back(divergence);
    }
  }
}

void add_notes(RunComparison& comparison) {
  auto& notes = comparison.notes;
  if (comparison.shared == 0) {
    notes.emplace_back(
        "The runs share no generation of the same strategy, prompt and repeat; only each run's own "
        "figures are shown.");
  }
  if (comparison.unlike > 0) {
    notes.push_back(fmt::format(
        "{} generations of equal names were left out of B/A: their prompts differ in length.",
        comparison.unlike));
  }
  std::string only_a;
  std::string only_b;
  for (const ComparedArm& arm : comparison.arms) {
    std::string& only = arm.a ? only_a : only_b;
    if (!arm.a || !arm.b) {
      only += (only.empty() ? "" : "; ") + arm.name;
    }
  }
  for (const auto& [side, only] : {std::pair{kSideA, only_a}, std::pair{kSideB, only_b}}) {
    if (!only.empty()) {
      notes.push_back(fmt::format("Only in {}: {}.", side, only));
    }
  }
}

std::string cell_of(const std::optional<SummaryRow>& row, std::string (*text)(const SummaryRow&)) {
  return row ? text(*row) : "-";
}

/// "4 of 4", or "2 of 4, 1 as far as both go, 1 near tie".
std::string same_texts(const ComparedArm& arm) {
  if (arm.texts == 0) {
    return "-";
  }
  const int64_t ties = near_ties(arm);
  return fmt::format("{} of {}{}{}", arm.texts - std::ssize(arm.unlike) - arm.cut_short, arm.texts,
                     arm.cut_short == 0 ? "" : fmt::format(", {} as far as both go", arm.cut_short),
                     ties == 0 ? "" : fmt::format(", {} near tie{}", ties, ties == 1 ? "" : "s"));
}

std::string speed_text(const SummaryRow& row) {
  return number_text(decode_tokens_per_second(row.counts), 1);
}
std::string step_text(const SummaryRow& row) { return number_text(tokens_per_step(row.counts), 2); }
std::string rate_text(const SummaryRow& row) { return percent_text(acceptance_rate(row.counts)); }

std::string ratio_text(const ComparedArm& arm) {
  if (!arm.b_over_a) {
    return "-";
  }
  const auto& interval = arm.b_over_a->interval;
  return interval ? fmt::format("{:.2f} ({:.2f} to {:.2f})", arm.b_over_a->ratio, interval->low,
                                interval->high)
                  : fmt::format("{:.2f}", arm.b_over_a->ratio);
}

/// Questions of the two runs: "12", or "A 12, B 10, both 9" where they differ.
std::string questions_of_both(const ComparedArm& arm) {
  const int64_t a = arm.a ? arm.a->questions : 0;
  const int64_t b = arm.b ? arm.b->questions : 0;
  const int64_t both = arm.b_over_a ? arm.b_over_a->questions : 0;
  return a == b && a == both ? fmt::format("{}", a)
                             : fmt::format("A {}, B {}, both {}", a, b, both);
}

/// B - A over what both have.
std::optional<double> difference(const ComparedArm& arm,
                                 std::optional<double> (*metric)(const Counts&)) {
  const auto a = arm.shared_a ? metric(arm.shared_a->counts) : std::nullopt;
  const auto b = arm.shared_b ? metric(arm.shared_b->counts) : std::nullopt;
  return a && b ? std::optional(*b - *a) : std::nullopt;
}

std::string signed_text(std::optional<double> number, double scale, const char* unit) {
  return number ? fmt::format("{:+.2f}{}", scale * *number, unit) : "-";
}

nlohmann::ordered_json optional_row(const std::optional<SummaryRow>& row) {
  return row ? row_json(*row) : nlohmann::ordered_json();
}

nlohmann::ordered_json optional_number(std::optional<double> number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json();
}

nlohmann::ordered_json differences_json(const ComparedArm& arm) {
  auto json = nlohmann::ordered_json::array();
  for (const Divergence& each : arm.unlike) {
    json.push_back({{"prompt", each.key.prompt_id},
                    {"repeat", each.key.repeat},
                    {"position", each.position},
                    {"gap_a", each.gap_first},  // NaN is written as null
                    {"gap_b", each.gap_other},
                    {"token_a", each.token_first},
                    {"token_b", each.token_other}});
  }
  return json;
}

void write_differences(std::ostream& out, const ReportTable& table) {
  if (table.rows.empty()) {
    return;
  }
  std::vector<Cells> rows = {table.header};
  rows.insert(rows.end(), table.rows.begin(), table.rows.end());
  for (Cells& cells : rows) {
    cells[0] = one_line(cells[0], 40);
    cells[1] = one_line(cells[1], 40);
  }
  out << table.caption << "\n";
  write_aligned(out, rows, 2);
}

nlohmann::ordered_json ratio_interval_json(const ComparedArm& arm) {
  auto json = nlohmann::ordered_json::array();
  if (arm.b_over_a && arm.b_over_a->interval) {
    json.push_back(arm.b_over_a->interval->low);
    json.push_back(arm.b_over_a->interval->high);
  }
  return json.empty() ? nlohmann::ordered_json() : json;
}

}  // namespace

int64_t near_ties(const ComparedArm& arm) {
  return std::count_if(arm.unlike.begin(), arm.unlike.end(), [](const Divergence& each) {
    return each.gap_first <= kNearTieGap && each.gap_other <= kNearTieGap;
  });
}

RunComparison compare_runs(const ComparedRun& a, const ComparedRun& b) {
  RunComparison comparison{.name_a = a.name, .name_b = b.name, .arms = {}, .notes = {}};
  for (SummaryRow& row : summarize(a.records, {.condition_of = a.condition_of}).rows) {
    if (row.category.empty()) {
      arm_named(comparison.arms, full_name(row.strategy, row.sweep_point)).a = row;
    }
  }
  for (SummaryRow& row : summarize(b.records, {.condition_of = b.condition_of}).rows) {
    if (row.category.empty()) {
      arm_named(comparison.arms, full_name(row.strategy, row.sweep_point)).b = row;
    }
  }
  for (const auto& [name, records] : pair_records(a, b, comparison)) {
    compare_arm(records, arm_named(comparison.arms, name));
  }
  shorten_names(comparison.arms);
  add_notes(comparison);
  return comparison;
}

ReportTable comparison_table(const RunComparison& comparison) {
  ReportTable table{.id = "comparison",
                    .caption = "A: " + comparison.name_a + "; B: " + comparison.name_b,
                    .header = {"strategy", "tokens/s A", "tokens/s B", "speed B/A", "speed-up A",
                               "speed-up B", "tokens/step A", "tokens/step B", "tokens/step B-A",
                               "acceptance A", "acceptance B", "questions", "same texts"},
                    .rows = {},
                    .styles = {}};
  for (const ComparedArm& arm : comparison.arms) {
    table.rows.push_back(
        {arm.name, cell_of(arm.a, speed_text), cell_of(arm.b, speed_text), ratio_text(arm),
         cell_of(arm.a, speedup_text), cell_of(arm.b, speedup_text), cell_of(arm.a, step_text),
         cell_of(arm.b, step_text), signed_text(difference(arm, tokens_per_step), 1.0, ""),
         cell_of(arm.a, rate_text), cell_of(arm.b, rate_text), questions_of_both(arm),
         same_texts(arm)});
  }
  return table;
}

ReportTable differences_table(const RunComparison& comparison, size_t rows) {
  ReportTable table{
      .id = "differences",
      .caption = "Where greedy texts differ first. Gap: best minus second-best logit.",
      .header = {"strategy", "prompt", "repeat", "position", "gap A", "gap B", "token A",
                 "token B"},
      .rows = {},
      .names = 2,
      .styles = {}};
  size_t left_out = 0;
  for (const ComparedArm& arm : comparison.arms) {
    for (const Divergence& each : arm.unlike) {
      if (table.rows.size() == rows) {
        ++left_out;
        continue;
      }
      Cells cells = {arm.name, each.key.prompt_id, fmt::format("{}", each.key.repeat)};
      for (std::string& cell : divergence_cells(each)) {
        cells.push_back(std::move(cell));
      }
      table.rows.push_back(std::move(cells));
    }
  }
  if (left_out > 0) {
    table.caption += fmt::format(" {} more are in --json.", left_out);
  }
  return table;
}

void write_comparison(std::ostream& out, const RunComparison& comparison) {
  const ReportTable table = comparison_table(comparison);
  std::vector<Cells> rows = {table.header};
  rows.insert(rows.end(), table.rows.begin(), table.rows.end());
  for (Cells& cells : rows) {
    cells[0] = one_line(cells[0], 40);
    cells.erase(cells.begin() + kAcceptanceColumn, cells.begin() + kAcceptanceColumn + 2);
  }
  out << "A: " << one_line(comparison.name_a, 200) << "\nB: " << one_line(comparison.name_b, 200)
      << "\n";
  write_aligned(out, rows, 1);
  write_differences(out, differences_table(comparison, kDifferencesInTerminal));
  for (const std::string& note : comparison.notes) {
    out << "Note: " << one_line(note, 400) << "\n";
  }
}

nlohmann::ordered_json comparison_json(const RunComparison& comparison) {
  auto arms = nlohmann::ordered_json::array();
  for (const ComparedArm& arm : comparison.arms) {
    arms.push_back(
        {{"name", arm.name},
         {"b_over_a", arm.b_over_a ? optional_number(arm.b_over_a->ratio) : optional_number({})},
         {"b_over_a_interval_95", ratio_interval_json(arm)},
         {"tokens_per_step_difference", optional_number(difference(arm, tokens_per_step))},
         {"acceptance_rate_difference", optional_number(difference(arm, acceptance_rate))},
         {"greedy_texts", arm.texts},
         {"unlike_greedy_texts", std::ssize(arm.unlike)},
         {"texts_equal_as_far_as_both_go", arm.cut_short},
         {"near_ties", near_ties(arm)},
         {"differences", differences_json(arm)},
         {"a", optional_row(arm.a)},
         {"b", optional_row(arm.b)},
         {"shared_a", optional_row(arm.shared_a)},
         {"shared_b", optional_row(arm.shared_b)}});
  }
  return {{"a", comparison.name_a},
          {"b", comparison.name_b},
          {"shared_generations", comparison.shared},
          {"unlike_prompts", comparison.unlike},
          {"arms", std::move(arms)},
          {"notes", comparison.notes}};
}

void write_comparison_html(std::ostream& out, const RunComparison& comparison) {
  out << page_head(comparison.name_a + " and " + comparison.name_b)
      << "<h1>Two runs compared</h1>\n<ul>\n<li>A: " << escape_html(comparison.name_a)
      << "</li>\n<li>B: " << escape_html(comparison.name_b) << "</li>\n</ul>\n";
  if (!comparison.notes.empty()) {
    out << "<div class=\"warnings\"><ul>\n";
    for (const std::string& note : comparison.notes) {
      out << "<li>" << escape_html(note) << "</li>\n";
    }
    out << "</ul></div>\n";
  }
  const ReportTable differences = differences_table(comparison, kDifferencesOnPage);
  out << table_html(comparison_table(comparison))
      << (differences.rows.empty()
              ? ""
              : "<h2>" + escape_html(differences.caption) + "</h2>\n" + table_html(differences))
      << "<p class=\"soft\">Speed B/A: decoding speed of B relative to A on the generations that "
         "both "
         "have, paired by question, with its 95 % interval. Tokens/step B-A: the difference on the "
         "same generations. The other columns are each run's own, with speed-ups over its own "
         "first strategy. Questions: those that a run answered, and those behind B/A where they "
         "differ. Same texts: greedy generations with equal tokens; as far as both go: one side "
         "ended at max_new_tokens or with a full context, and the other went on from there; a near "
         "tie is a difference "
         "where "
         "the two best logits lie within 0.001 of each other in both runs.</p>\n"
      << page_end();
}

}  // namespace specdec
