#pragma once
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/types.h"

namespace specdec {

/// What somebody keeps of each open row of a model, by the rows' names. Row 0 is open from the
/// beginning and stays; the name of a closed row is never given again, so whoever still holds it
/// gets an InternalError. Each row has a place below places(), which it keeps and which another one
/// may have after it: for tables.
template <class Row>
class NamedRows {
 public:
  NamedRows() : rows_(1) { rows_.front().name = 0; }

  /// A new row, in the lowest free place.
  RowId open(Row row = {}) {
    auto free = std::find_if(rows_.begin(), rows_.end(),
                             [](const Place& place) { return place.name == kClosed; });
    if (free == rows_.end()) {
      free = rows_.insert(free, Place());
    }
    *free = {next_, std::move(row)};
    return next_++;
  }
  void close(RowId row) {
    SPECDEC_CHECK(row != 0, "row 0 stays open: truncate it to 0 tokens instead");
    rows_[place(row)] = {};
  }

  Row& operator[](RowId row) { return rows_[place(row)].row; }
  const Row& operator[](RowId row) const { return rows_[place(row)].row; }
  bool is_open(RowId row) const { return find(row) < rows_.size(); }
  /// Names of the open rows, ascending.
  std::vector<RowId> names() const {
    std::vector<RowId> names;
    for (const Place& place : rows_) {
      if (place.name != kClosed) {
        names.push_back(place.name);
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  size_t place(RowId row) const {
    const size_t found = find(row);
    SPECDEC_CHECK(found < rows_.size(), "row {} is not open: {}", row,
                  row >= 0 && row < next_ ? "it was closed" : "there never was one of this name");
    return found;
  }
  size_t places() const { return rows_.size(); }

 private:
  static constexpr RowId kClosed = -1;
  struct Place {
    RowId name = kClosed;
    Row row = {};
  };

  size_t find(RowId row) const {
    size_t at = 0;
    while (at < rows_.size() && (row == kClosed || rows_[at].name != row)) {
      ++at;
    }
    return at;
  }

  std::vector<Place> rows_;
  RowId next_ = 1;
};

}  // namespace specdec
