#include "experiments/certify/certify_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>

#include "core/formats/json_text.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {
namespace {

constexpr size_t kTableColumns = 120;
constexpr std::string_view kIndent = "            ";  ///< below the row's mode

const char* mode_name(const CertifyRow& row) { return row.greedy ? "greedy" : "sampled"; }

/// Strategies without parts are shown with their options in the first column.
std::array<std::string, 4> columns_of(const CertifyRow& row) {
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  return {row.cell.strategy.label, or_dash(row.cell.drafter.label), or_dash(row.cell.shape.label),
          or_dash(row.cell.verifier.label)};
}

/// A table of at most kTableColumns columns: what is longer goes on below, within its column.
class Table {
 public:
  explicit Table(const std::vector<CertifyRow>& rows) {
    for (const auto& row : rows) {
      const auto columns = columns_of(row);
      for (size_t i = 0; i < columns.size(); ++i) {
        widths_[i] = std::max(widths_[i], std::min(kWidest[i], columns[i].size()));
      }
    }
  }

  /// The lines of a row, each with its line feed.
  std::string lines(const std::array<std::string, 4>& columns, const std::string& mode,
                    const std::string& finding) const {
    std::array<std::vector<std::string>, 4> cells;
    size_t count = 1;
    for (size_t i = 0; i < columns.size(); ++i) {
      cells[i] = wrap_text(columns[i], widths_[i]);
      count = std::max(count, cells[i].size());
    }
    std::string text;
    for (size_t line = 0; line < count; ++line) {
      std::string one =
          fmt::format("{:<10}  {:<7}", line == 0 ? finding : "", line == 0 ? mode : "");
      for (size_t i = 0; i < columns.size(); ++i) {
        one += fmt::format("  {:<{}}", line < cells[i].size() ? cells[i][line] : "", widths_[i]);
      }
      text += one.substr(0, one.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }
  std::string head() const {
    return lines({"strategy", "drafter", "shape", "verifier"}, "mode", "finding");
  }

 private:
  /// Widest columns: with mode, finding and the gaps between columns they take kTableColumns.
  static constexpr std::array<size_t, 4> kWidest = {22, 25, 26, 20};
  std::array<size_t, 4> widths_ = {8, 7, 5, 8};
};

/// What was measured, or why nothing was.
std::string details(const CertifyRow& row) {
  switch (row.finding) {
    case Finding::kRefused:
      return row.reason;
    case Finding::kBroken:
      return fmt::format("difference {:.2e}: {}", row.difference, row.reason);
    default:
      return fmt::format("difference {:.1e}, {} outcomes, {} of {} drafted accepted{}{}",
                         row.difference, row.outcomes, row.accepted, row.drafted,
                         row.reason.empty() ? "" : "; ", row.reason);
  }
}

nlohmann::json certify_row_json(const CertifyRow& row) {
  nlohmann::json json = {{"strategy", row.cell.strategy.type},
                         {"drafter", row.cell.drafter.type},
                         {"shape", row.cell.shape.type},
                         {"verifier", row.cell.verifier.type},
                         {"labels", columns_of(row)},
                         {"mode", mode_name(row)},
                         {"finding", finding_name(row.finding)},
                         {"yaml", row.cell.yaml}};
  if (!row.reason.empty()) {
    json["reason"] = row.reason;
  }
  return json;
}

void write_json(std::ostream& out, const nlohmann::json& json) {
  out << json_text(json, 1) << "\n";
}

/// A row, and below it what was measured.
void write_row(std::ostream& out, const Table& table, const CertifyRow& row) {
  out << table.lines(columns_of(row), mode_name(row), finding_name(row.finding));
  for (const auto& line : wrap_text(details(row), kTableColumns - kIndent.size())) {
    out << kIndent << line << "\n";
  }
}

/// What must be seen stands last, where a terminal shows it.
void write_broken(std::ostream& out, const Table& table, const CertifyResult& result) {
  if (result.count(Finding::kBroken) == 0) {
    return;
  }
  out << "\nBroken:\n";
  for (const auto& row : result.rows) {
    if (row.finding == Finding::kBroken) {
      write_row(out, table, row);
    }
  }
}

void write_untested(std::ostream& out, const CertifyResult& result) {
  for (const auto& text : result.untested) {
    for (const auto& line : wrap_text("UNTESTED  " + text, kTableColumns)) {
      out << line << "\n";
    }
  }
}

}  // namespace

void write_certificate(std::ostream& out, const CertifyResult& result) {
  const Table table(result.rows);
  out << table.head() << kIndent << "largest difference of the distributions\n";
  int64_t outcomes = 0;
  for (const auto& row : result.rows) {
    write_row(out, table, row);
    outcomes += row.outcomes;
  }
  write_broken(out, table, result);
  write_untested(out, result);
  out << fmt::format(
      "\n{}: {} combinations: {} lossless (difference below {:.0e}), {} unverified, {} "
      "lossy as declared,\n{} search, {} refused with a reason, {} broken, {} components untested; "
      "{} outcomes "
      "enumerated\n",
      result.passed() ? "PASSED" : "FAILED", result.rows.size(), result.count(Finding::kLossless),
      kExactDistribution, result.count(Finding::kUnverified), result.count(Finding::kLossy),
      result.count(Finding::kSearch), result.count(Finding::kRefused),
      result.count(Finding::kBroken), result.untested.size(), outcomes);
}

void write_certificate_json(std::ostream& out, const CertifyResult& result) {
  auto rows = nlohmann::json::array();
  for (const auto& row : result.rows) {
    auto json = certify_row_json(row);
    json["difference"] = row.difference;
    json["outcomes"] = row.outcomes;
    json["drafted"] = row.drafted;
    json["accepted"] = row.accepted;
    rows.push_back(std::move(json));
  }
  write_json(out, {{"rows", rows},
                   {"untested", result.untested},
                   {"tolerance", kExactDistribution},
                   {"passed", result.passed()}});
}

void write_matrix_json(std::ostream& out, const CertifyResult& result) {
  auto rows = nlohmann::json::array();
  for (const auto& row : result.rows) {
    rows.push_back(certify_row_json(row));
  }
  write_json(out, {{"rows", rows}, {"untested", result.untested}});
}

}  // namespace specdec
