#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "experiments/certify/certify_report.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {
namespace {

constexpr size_t kLineCharacters = 100;

/// Short names of one kind of parts: the type, numbered where several have it.
class PartNames {
 public:
  void add(const CertifyPart& part) {
    auto& labels = labels_of_[part.type];
    if (std::find(labels.begin(), labels.end(), part.label) == labels.end()) {
      labels.push_back(part.label);
    }
  }
  std::string name(const CertifyPart& part) const {
    const auto& labels = labels_of_.at(part.type);
    const auto at = std::find(labels.begin(), labels.end(), part.label) - labels.begin();
    return labels.size() == 1 ? part.type : fmt::format("{} {}", part.type, at + 1);
  }
  /// "draft_model 1 = draft_model(weights: draft, sample: true)" of every name that hides options.
  void write_legend(std::ostream& out) const {
    for (const auto& [type, labels] : labels_of_) {
      for (const auto& label : labels) {
        const auto short_name = name({.type = type, .label = label, .yaml = {}});
        if (label != short_name) {
          out << fmt::format("  {:<16} {}\n", short_name, label);
        }
      }
    }
  }

 private:
  std::map<std::string, std::vector<std::string>> labels_of_;
};

/// Reasons by their numbers, in the order in which they come up.
class Footnotes {
 public:
  std::string mark(const std::string& reason) {
    const auto found = std::find(reasons_.begin(), reasons_.end(), reason);
    const auto at = found - reasons_.begin();
    if (found == reasons_.end()) {
      reasons_.push_back(reason);
    }
    return fmt::format("[{}]", at + 1);
  }
  void write(std::ostream& out) const {
    for (size_t i = 0; i < reasons_.size(); ++i) {
      const auto mark = fmt::format("[{}] ", i + 1);
      std::string line = mark;
      for (size_t begin = 0; begin < reasons_[i].size();) {
        const size_t end = std::min(reasons_[i].find(' ', begin), reasons_[i].size());
        if (line.size() + end - begin > kLineCharacters && line.size() > mark.size()) {
          out << line << "\n";
          line = std::string(mark.size(), ' ');
        }
        line += reasons_[i].substr(begin, end - begin) + " ";
        begin = end + 1;
      }
      out << line.substr(0, line.find_last_not_of(' ') + 1) << "\n";
    }
  }

 private:
  std::vector<std::string> reasons_;
};

/// Drafters in rows, shapes in columns; in a cell what is greedy, and what is sampled if it
/// differs.
struct MatrixTable {
  std::vector<std::string> titles;  ///< strategies, or verifiers, that have this very table
  std::vector<std::string> drafters, shapes;
  std::map<std::pair<std::string, std::string>, std::string> cells;

  bool equals(const MatrixTable& other) const {
    return drafters == other.drafters && shapes == other.shapes && cells == other.cells;
  }
};

class Matrix {
 public:
  explicit Matrix(const CertifyResult& result) {
    for (const auto& row : result.rows) {
      drafters_.add(row.cell.drafter);
      shapes_.add(row.cell.shape);
      verifiers_.add(row.cell.verifier);
      strategies_.add(row.cell.strategy);
    }
    for (const auto& row : result.rows) {
      add(row);
    }
    merge();
  }

  void write(std::ostream& out) const {
    out << "=  lossless    ~  lossy    S  search    [n]  refused, or for some settings: see below\n"
           "One mark: greedy and sampled alike; two: greedy, sampled.\n";
    for (const auto& table : tables_) {
      write_table(out, table);
    }
    out << "\n";
    footnotes_.write(out);
    out << "\nNames that stand for options:\n";
    for (const auto* names : {&strategies_, &drafters_, &shapes_, &verifiers_}) {
      names->write_legend(out);
    }
  }

 private:
  std::string mark(const CertifyRow& row) {
    switch (row.finding) {
      case Finding::kRefused:
        return footnotes_.mark(row.reason);
      case Finding::kBroken:
        return "BROKEN" + footnotes_.mark(row.reason);
      default:
        break;
    }
    const auto* sign = row.finding == Finding::kLossless ? "="
                       : row.finding == Finding::kLossy  ? "~"
                                                         : "S";
    return sign + (row.reason.empty() ? "" : footnotes_.mark(row.reason));
  }

  void add(const CertifyRow& row) {
    const auto& cell = row.cell;
    const auto strategy = strategies_.name(cell.strategy);
    const auto title = cell.verifier.type.empty()
                           ? strategy
                           : strategy + ", verifier " + verifiers_.name(cell.verifier);
    auto table = std::find_if(tables_.begin(), tables_.end(),
                              [&](const MatrixTable& one) { return one.titles.front() == title; });
    if (table == tables_.end()) {
      table = tables_.insert(tables_.end(), {{title}, {}, {}, {}});
    }
    const auto drafter = drafters_.name(cell.drafter);
    const auto shape = shapes_.name(cell.shape);
    const auto note = [](std::vector<std::string>& names, const std::string& name) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(name);
      }
    };
    note(table->drafters, drafter);
    note(table->shapes, shape);
    auto& text = table->cells[{drafter, shape}];
    const auto one = mark(row);
    text = text.empty() || text == one ? one : text + " " + one;
  }

  void merge() {
    std::vector<MatrixTable> merged;
    for (auto& table : tables_) {
      const auto same = std::find_if(merged.begin(), merged.end(),
                                     [&](const MatrixTable& one) { return one.equals(table); });
      if (same == merged.end()) {
        merged.push_back(std::move(table));
      } else {
        same->titles.push_back(table.titles.front());
      }
    }
    tables_ = std::move(merged);
  }

  static void write_table(std::ostream& out, const MatrixTable& table) {
    out << "\n" << fmt::format("{}", fmt::join(table.titles, "\n"));
    if (table.drafters == std::vector<std::string>{""}) {
      out << "  " << table.cells.begin()->second << "\n";
      return;
    }
    out << "\n";
    std::vector<Cells> rows = {{"drafter"}};
    rows[0].insert(rows[0].end(), table.shapes.begin(), table.shapes.end());
    for (const auto& drafter : table.drafters) {
      rows.push_back({drafter});
      for (const auto& shape : table.shapes) {
        const auto cell = table.cells.find({drafter, shape});
        rows.back().push_back(cell == table.cells.end() ? "" : cell->second);
      }
    }
    write_aligned(out, rows, rows[0].size());
  }

  PartNames strategies_, drafters_, shapes_, verifiers_;
  Footnotes footnotes_;
  std::vector<MatrixTable> tables_;
};

}  // namespace

void write_matrix(std::ostream& out, const CertifyResult& result) {
  Matrix(result).write(out);
  for (const auto& text : result.untested) {
    out << "UNTESTED  " << text << "\n";
  }
  out << "\nWhat is promised; 'specdec certify' proves it, and --json has every row.\n";
}

}  // namespace specdec
