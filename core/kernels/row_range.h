#pragma once
#include <cstdint>

namespace specdec {

/// Rows begin to end - 1 of a matrix.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t count() const { return end - begin; }
};

}  // namespace specdec
