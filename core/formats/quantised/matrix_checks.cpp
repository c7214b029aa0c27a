#include "core/formats/quantised/matrix_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "core/error.h"

namespace specdec {

void fail_tensor(const TensorFiles& files, const TensorEntry& entry, const std::string& problem) {
  throw WeightsError(
      fmt::format("{}: tensor '{}' {}.", files.folder().string(), entry.name, problem));
}

void MatrixChecks::require_size() const {
  if (matrix_.rows < 1 || matrix_.columns < 1 || matrix_.rows > kMaxMatrixSize ||
      matrix_.columns > kMaxMatrixSize) {
    fail(*matrix_.codes, fmt::format("is of a matrix of shape [{}, {}], which is not supported",
                                     matrix_.rows, matrix_.columns));
  }
}

void MatrixChecks::require(const TensorEntry* entry, const char* part,
                           std::vector<int64_t> shape) const {
  if (entry == nullptr) {
    fail(*matrix_.codes, fmt::format("has no {} beside it", part));
  }
  if (matrix_.stacked > 0) {
    shape.insert(shape.begin(), matrix_.stacked);
  }
  std::vector<int64_t> sizes = entry->shape;
  std::vector<int64_t> wanted = shape;
  std::erase(sizes, 1);
  std::erase(wanted, 1);
  if (sizes != wanted) {
    fail(*entry, fmt::format("has shape [{}], but for {} [{}, {}] it should be [{}]",
                             fmt::join(entry->shape, ", "),
                             matrix_.stacked > 0 ? "a stack of matrices" : "a matrix", matrix_.rows,
                             matrix_.columns, fmt::join(shape, ", ")));
  }
}

void MatrixChecks::require_type(const TensorEntry& entry, const std::vector<DType>& types) const {
  if (std::find(types.begin(), types.end(), entry.dtype) == types.end()) {
    std::vector<std::string_view> names;
    std::transform(types.begin(), types.end(), std::back_inserter(names), dtype_name);
    fail(entry, fmt::format("has dtype {}; it should be {}", dtype_name(entry.dtype),
                            fmt::join(names, " or ")));
  }
}

}  // namespace specdec
