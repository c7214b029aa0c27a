#include "experiments/report/conditions.h"

#include <algorithm>
#include <set>

#include "experiments/report/report_text.h"

namespace specdec {
namespace {

const ReportSweepPoint* find_point(const Report& report, const std::string& label) {
  const auto found =
      std::find_if(report.sweep_points.begin(), report.sweep_points.end(),
                   [&](const ReportSweepPoint& point) { return point.label == label; });
  return found == report.sweep_points.end() ? nullptr : &*found;
}

std::string value_at(const ReportSweepPoint& point, size_t key) {
  return key < point.values.size() ? point.values[key] : "";
}

/// Whether the strategy was run with as few values of a key as if there were none.
bool is_untouched(const Report& report, const std::string& strategy, size_t key) {
  std::set<std::string> all;
  for (const ReportSweepPoint& point : report.sweep_points) {
    all.insert(value_at(point, key));
  }
  std::set<std::string> own;
  for (const SummaryRow& row : report.summary.rows) {
    const auto* point = row.strategy == strategy ? find_point(report, row.sweep_point) : nullptr;
    if (point != nullptr) {
      own.insert(value_at(*point, key));
    }
  }
  return all.size() > 1 && own.size() < 2;
}

/// The strategy's row over all prompts at a point, or the only one of the point's condition.
const SummaryRow* row_at(const Report& report, const std::string& strategy,
                         const ReportSweepPoint& point) {
  const SummaryRow* only = nullptr;
  size_t count = 0;
  for (const SummaryRow& row : report.summary.rows) {
    if (row.strategy != strategy || !row.category.empty()) {
      continue;
    }
    if (row.sweep_point == point.label) {
      return &row;
    }
    if (condition_of(report, row.sweep_point) == point.condition) {
      only = &row;
      ++count;
    }
  }
  return count == 1 ? only : nullptr;
}

/// Names of the strategies in the rows, in order of appearance.
std::vector<std::string> strategies_of(const Report& report) {
  std::vector<std::string> names;
  for (const SummaryRow& row : report.summary.rows) {
    if (std::find(names.begin(), names.end(), row.strategy) == names.end()) {
      names.push_back(row.strategy);
    }
  }
  return names;
}

}  // namespace

std::string condition_of(const Report& report, const std::string& sweep_point) {
  const auto* point = find_point(report, sweep_point);
  return point == nullptr ? "" : point->condition;
}

ConditionOf conditions_by(const Report& report) {
  return [&report](const std::string& sweep_point) { return condition_of(report, sweep_point); };
}

std::vector<std::string> conditions_of(const Report& report) {
  std::vector<std::string> conditions;
  for (const SummaryRow& row : report.summary.rows) {
    const auto condition = condition_of(report, row.sweep_point);
    if (std::find(conditions.begin(), conditions.end(), condition) == conditions.end()) {
      conditions.push_back(condition);
    }
  }
  return conditions;
}

std::string choice_name(const Report& report, const SummaryRow& row) {
  const auto condition = condition_of(report, row.sweep_point);
  const bool has_others = std::any_of(
      report.summary.rows.begin(), report.summary.rows.end(), [&](const SummaryRow& other) {
        return other.strategy == row.strategy && other.sweep_point != row.sweep_point &&
               condition_of(report, other.sweep_point) == condition;
      });
  if (!has_others) {
    return row.strategy;
  }
  const auto* point = find_point(report, row.sweep_point);
  const bool has_choice = point != nullptr && !point->choice.empty();
  return row.strategy + ", " + (has_choice ? point->choice : row.sweep_point);
}

bool is_lossy_row(const Report& report, const SummaryRow& row) {
  const size_t index = strategy_index(report, row.strategy);
  if (index >= report.strategies.size() || !report.strategies[index].lossy) {
    return false;
  }
  const auto* point = find_point(report, row.sweep_point);
  return point == nullptr || std::find(point->lossless.begin(), point->lossless.end(),
                                       row.strategy) == point->lossless.end();
}

Cells sweep_header(const Report& report) {
  const auto last = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  Cells header;
  for (const std::string& key : report.sweep_keys) {
    const auto same =
        std::count_if(report.sweep_keys.begin(), report.sweep_keys.end(),
                      [&](const std::string& other) { return last(other) == last(key); });
    header.push_back(same > 1 ? key : last(key));
  }
  return header;
}

Cells sweep_cells(const Report& report, const SummaryRow& row) {
  const auto* point = find_point(report, row.sweep_point);
  Cells cells;
  for (size_t key = 0; key < report.sweep_keys.size(); ++key) {
    cells.push_back(
        point == nullptr || is_untouched(report, row.strategy, key) ? "-" : value_at(*point, key));
  }
  return cells;
}

namespace {

/// Questions of the strategies at a point: "12", or of each where they differ, "plain 12; fast 9 of
/// 12: 3 not run". nullptr: not run there.
std::string pivot_questions(const std::vector<const SummaryRow*>& rows) {
  std::set<std::string> texts;
  std::string each;
  for (const SummaryRow* row : rows) {
    if (row != nullptr) {
      texts.insert(questions_text(*row));
      each += (each.empty() ? "" : "; ") + row->strategy + " " + questions_text(*row);
    }
  }
  return texts.size() > 1 ? each : texts.empty() ? "-" : *texts.begin();
}

}  // namespace

Cells pivot_header(const Report& report) {
  Cells header = sweep_header(report);
  for (const std::string& name : strategies_of(report)) {
    const size_t index = strategy_index(report, name);
    const bool lossy = index < report.strategies.size() && report.strategies[index].lossy;
    header.push_back(name + (lossy ? " (lossy)" : "") +
                     (name == report.summary.rows.front().strategy ? ", tokens/s" : ", speed-up"));
  }
  header.emplace_back("questions");
  return header;
}

std::vector<Cells> pivot_rows(const Report& report) {
  std::vector<Cells> rows;
  if (conditions_of(report).size() < 2) {
    return rows;
  }
  for (const ReportSweepPoint& point : report.sweep_points) {
    Cells cells = point.values;
    cells.resize(report.sweep_keys.size());
    std::vector<const SummaryRow*> of_point;
    bool is_run = false;
    for (const std::string& name : strategies_of(report)) {
      const SummaryRow* row = row_at(report, name, point);
      of_point.push_back(row);
      is_run = is_run || (row != nullptr && row->sweep_point == point.label);
      cells.push_back(row == nullptr  ? "-"
                      : row->is_first ? number_text(decode_tokens_per_second(row->counts), 1)
                                      : speedup_text(*row));
    }
    if (is_run) {
      cells.push_back(pivot_questions(of_point));
      rows.push_back(std::move(cells));
    }
  }
  return rows;
}

}  // namespace specdec
