#include "experiments/certify/certify_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "core/formats/json_text.h"

namespace specdec {
namespace {

const char* mode_name(const CertifyRow& row) { return row.greedy ? "greedy" : "sampled"; }

/// Strategies without parts are shown with their options in the first column.
std::array<std::string, 4> columns_of(const CertifyRow& row) {
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  return {row.cell.strategy.label, or_dash(row.cell.drafter.label), or_dash(row.cell.shape.label),
          or_dash(row.cell.verifier.label)};
}

class Table {
 public:
  explicit Table(const std::vector<CertifyRow>& rows) {
    for (const auto& row : rows) {
      const auto columns = columns_of(row);
      for (size_t i = 0; i < columns.size(); ++i) {
        widths_[i] = std::max(widths_[i], columns[i].size());
      }
    }
  }

  std::string line(const std::array<std::string, 4>& columns, const std::string& mode) const {
    std::string text;
    for (size_t i = 0; i < columns.size(); ++i) {
      text += fmt::format("{:<{}}  ", columns[i], widths_[i]);
    }
    return text + fmt::format("{:<7}", mode);
  }
  std::string head() const { return line({"strategy", "drafter", "shape", "verifier"}, "mode"); }

 private:
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

void write_untested(std::ostream& out, const CertifyResult& result) {
  for (const auto& text : result.untested) {
    out << "UNTESTED  " << text << "\n";
  }
}

}  // namespace

void write_certificate(std::ostream& out, const CertifyResult& result) {
  const Table table(result.rows);
  out << fmt::format("{}  {:<10}  {}\n", table.head(), "finding",
                     "largest difference of the distributions");
  int64_t outcomes = 0;
  for (const auto& row : result.rows) {
    out << fmt::format("{}  {:<10}  {}\n", table.line(columns_of(row), mode_name(row)),
                       finding_name(row.finding), details(row));
    outcomes += row.outcomes;
  }
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
