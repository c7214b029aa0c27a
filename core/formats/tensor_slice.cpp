#include "core/formats/tensor_slice.h"

#include <utility>

#include "core/error.h"

namespace specdec {

int64_t flat_rows(const TensorEntry& entry) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < entry.shape.size(); ++i) {
    rows *= entry.shape[i];
  }
  return rows;
}

TensorEntry slice_rows(const TensorEntry& whole, int64_t first, std::vector<int64_t> shape,
                       std::string name) {
  TensorEntry part = whole;
  part.name = std::move(name);
  part.shape = std::move(shape);
  SPECDEC_CHECK(
      !whole.shape.empty() && !part.shape.empty() && whole.shape.back() == part.shape.back(),
      "{} has rows of another length than {}", part.name, whole.name);
  const int64_t rows = flat_rows(part);
  const int64_t all = flat_rows(whole);
  SPECDEC_CHECK(first >= 0 && rows >= 0 && first <= all && rows <= all - first,
                "{} is beyond the {} rows of {}", part.name, all, whole.name);
  SPECDEC_CHECK(whole.interleaved_rows == 0 ||
                    (first % whole.interleaved_rows == 0 && rows % whole.interleaved_rows == 0),
                "{} cuts a group of rows of {}", part.name, whole.name);
  const size_t row_bytes = all == 0 ? 0 : whole.bytes.size() / static_cast<size_t>(all);
  part.bytes = whole.bytes.subspan(static_cast<size_t>(first) * row_bytes,
                                   static_cast<size_t>(rows) * row_bytes);
  return part;
}

}  // namespace specdec
