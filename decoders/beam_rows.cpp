#include "decoders/beam_rows.h"

#include <utility>

namespace specdec {

void BeamRows::branch(std::span<const Branch> branches) {
  std::vector<int64_t> children(rows_.size());
  for (const Branch& branch : branches) {
    if (!rows_.empty()) {
      ++children.at(static_cast<size_t>(branch.parent));
    }
  }
  for (size_t beam = 0; beam < rows_.size(); ++beam) {
    if (children[beam] == 0) {  // before others are forked, so that there is room
      const OpenRow ended = std::move(rows_[beam]);
    }
  }
  std::vector<OpenRow> next;
  next.reserve(branches.size());
  names_.clear();
  for (const Branch& branch : branches) {
    next.push_back(
        row_of(branch, !rows_.empty() && --children[static_cast<size_t>(branch.parent)] == 0));
    names_.push_back(next.back().name());
  }
  rows_ = std::move(next);
}

OpenRow BeamRows::row_of(const Branch& branch, bool is_last_child) {
  const auto parent = static_cast<size_t>(branch.parent);
  const RowId row = rows_.empty() ? 0 : rows_[parent].name();
  if (!is_last_child) {
    return {model_, model_.fork(row, branch.length)};
  }
  model_.truncate(branch.length, row);
  return std::move(rows_[parent]);
}

}  // namespace specdec
