#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/open_row.h"

namespace specdec {

/// Rows of a model that follow beams: row 0 keeps the prompt, each beam has a row of its own, and
/// there are never more than these. The rows are closed at its end. Borrows the model.
class BeamRows {
 public:
  /// What a beam continues: the first `length` kept tokens of the row that another beam has now;
  /// those of row 0 before there are beams.
  struct Branch {
    int64_t parent = 0;
    int64_t length = 0;
  };

  explicit BeamRows(LanguageModel& model) : model_(model) {}
  /// Beam i continues branches[i]. Pending nodes are forgotten.
  void branch(std::span<const Branch> branches);
  /// Row of each beam.
  const std::vector<RowId>& names() const { return names_; }

 private:
  OpenRow row_of(const Branch& branch, bool is_last_child);

  LanguageModel& model_;
  std::vector<OpenRow> rows_;
  std::vector<RowId> names_;
};

}  // namespace specdec
