#include "core/formats/quantised/packed_matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/formats/float_values.h"
#include "core/formats/quantised/matrix_checks.h"

namespace specdec {
namespace {

using Codes = CompressionScheme::Codes;
using WholeScale = CompressionScheme::WholeScale;

int64_t shape_number(const TensorEntry& entry, int64_t i) {
  const std::byte* from = entry.bytes.data() + i * dtype_bytes(entry.dtype);
  if (entry.dtype == DType::kI64) {
    int64_t wide = 0;
    std::memcpy(&wide, from, sizeof(wide));
    return wide;
  }
  int32_t narrow = 0;
  std::memcpy(&narrow, from, sizeof(narrow));
  return narrow;
}

constexpr int64_t kPackedWordBits = 32;

/// Words that hold so many codes.
int64_t packed_words(int64_t values, const CompressionScheme& scheme) {
  return (values * scheme.bits + kPackedWordBits - 1) / kPackedWordBits;
}

std::vector<int64_t> packed_shape(const TensorFiles& files, const TensorEntry& codes,
                                  const std::string& name, const CompressionScheme& scheme) {
  const TensorEntry* entry = files.find(name + "_shape");
  const size_t dimensions = codes.shape.size();
  if (entry == nullptr && dimensions == 3) {  // stacks are written without
    std::vector<int64_t> shape = codes.shape;
    shape.back() *= kPackedWordBits / scheme.bits;
    return shape;
  }
  if (entry == nullptr) {
    throw WeightsError(
        fmt::format("{}: tensor '{}_shape' is missing.", files.folder().string(), name));
  }
  if ((entry->dtype != DType::kI64 && entry->dtype != DType::kI32) || dimensions < 2 ||
      dimensions > 3 || entry->shape != std::vector{static_cast<int64_t>(dimensions)}) {
    fail_tensor(files, *entry,
                dimensions == 3 ? "should hold three integers" : "should hold two integers");
  }
  std::vector<int64_t> shape;
  for (size_t i = 0; i < dimensions; ++i) {
    shape.push_back(shape_number(*entry, static_cast<int64_t>(i)));
  }
  return shape;
}

void check_packed_order(const TensorFiles& files, const TensorEntry& entry,
                        const CompressedMatrix& matrix) {
  const int64_t count = std::max<int64_t>(1, matrix.stacked) * matrix.columns;
  if (entry.dtype != DType::kI32 ||
      std::ssize(entry.bytes) != count * static_cast<int64_t>(sizeof(int32_t))) {
    fail_tensor(files, entry, fmt::format("should hold {} integers of type I32", count));
  }
  const int64_t columns = matrix.scheme.columns_per_scale;
  const int64_t group = columns == 0 ? matrix.columns : columns;
  for (int64_t i = 0; i < count; ++i) {
    // -1 is what the library writes before an order is known.
    const int64_t place = shape_number(entry, i);
    if (place != -1 && place != i % matrix.columns / group) {
      fail_tensor(
          files, entry,
          "orders its groups by activations (actorder: group), which is not supported; use a "
          "checkpoint with actorder: weight, or without");
    }
  }
}

void check_packed_size(const TensorFiles& files, const CompressedMatrix& matrix) {
  const CompressionScheme& scheme = matrix.scheme;
  MatrixChecks(files, matrix).require_size();
  const int64_t columns = scheme.codes == Codes::kPacked   ? packed_words(matrix.columns, scheme)
                          : scheme.codes == Codes::kFloat4 ? matrix.columns / 2
                                                           : matrix.columns;
  std::vector<int64_t> wanted = {matrix.rows, columns};
  if (matrix.stacked > 0) {
    wanted.insert(wanted.begin(), matrix.stacked);
  }
  if (matrix.codes->shape != wanted) {
    fail_tensor(files, *matrix.codes,
                fmt::format("has shape [{}], but holds {} bits of each weight of a matrix "
                            "[{}, {}]",
                            fmt::join(matrix.codes->shape, ", "), scheme.bits, matrix.rows,
                            matrix.columns));
  }
}

void check_packed_float4(const TensorFiles& files, const CompressedMatrix& matrix) {
  const bool has_whole = matrix.scheme.whole_scale != WholeScale::kNone;
  const DType wanted = has_whole ? DType::kF8E4M3 : DType::kU8;
  if (matrix.scales->dtype != wanted) {
    fail_tensor(files, *matrix.scales,
                fmt::format("has dtype {}; the scales of this format are {}",
                            dtype_name(matrix.scales->dtype), dtype_name(wanted)));
  }
  if (matrix.stacked > 0) {
    fail_tensor(files, *matrix.codes,
                "is a stack of experts' matrices, which is not supported in 4-bit floats");
  }
  if (!has_whole) {
    return;
  }
  const MatrixChecks checks(files, matrix);
  checks.require(matrix.whole, "scale of the whole matrix", {1});
  checks.require_type(*matrix.whole, {DType::kF32});
  const float whole = float_values(*matrix.whole).front();
  if (!(whole > 0.0F) || !std::isfinite(whole)) {
    fail_tensor(files, *matrix.whole, fmt::format("is {}; it should be a number above 0", whole));
  }
}

void check_packed(const TensorFiles& files, const CompressedMatrix& matrix) {
  check_packed_size(files, matrix);
  const MatrixChecks checks(files, matrix);
  checks.require(matrix.scales, "weight_scale", {matrix.scale_rows(), matrix.scale_columns()});
  if (matrix.scheme.codes == Codes::kFloat4) {
    return check_packed_float4(files, matrix);
  }
  checks.require_type(*matrix.scales, {DType::kF32, DType::kF16, DType::kBF16});
  if (matrix.scheme.symmetric) {
    return;
  }
  const bool packed = matrix.scheme.codes == Codes::kPacked;
  checks.require(
      matrix.zeros, "weight_zero_point",
      {packed ? packed_words(matrix.rows, matrix.scheme) : matrix.rows, matrix.scale_columns()});
  if (matrix.zeros->dtype != matrix.codes->dtype) {
    fail_tensor(files, *matrix.zeros,
                fmt::format("has dtype {}; it should be {} as the codes are",
                            dtype_name(matrix.zeros->dtype), dtype_name(matrix.codes->dtype)));
  }
}

}  // namespace

CompressedMatrix describe_packed(const TensorFiles& files, const TensorEntry& codes,
                                 const std::string& name, const CompressionScheme& scheme) {
  std::vector<int64_t> shape =
      scheme.codes == Codes::kPacked ? packed_shape(files, codes, name, scheme) : codes.shape;
  if (scheme.codes == Codes::kFloat4 && !shape.empty()) {
    shape.back() *= shape.back() < kMaxMatrixSize ? 2 : 1;  // a larger one is refused
  }
  CompressedMatrix matrix;
  matrix.scheme = scheme;
  matrix.codes = &codes;
  for (const char* end : {"_scale_inv", "_scale"}) {
    const TensorEntry* scales = files.find(name + end);
    matrix.scales = scales == nullptr ? matrix.scales : scales;
  }
  matrix.zeros = scheme.symmetric ? nullptr : files.find(name + "_zero_point");
  if (scheme.whole_scale != WholeScale::kNone) {
    matrix.whole = files.find(
        name + (scheme.whole_scale == WholeScale::kDivides ? "_global_scale" : "_scale_2"));
  }
  if (shape.size() == 3) {
    matrix.stacked = std::max<int64_t>(1, shape.front());
    shape.erase(shape.begin());
  }
  matrix.rows = shape.empty() ? 0 : shape[0];
  matrix.columns = shape.size() == 2 ? shape[1] : 0;
  check_packed(files, matrix);
  if (const TensorEntry* order = files.find(name + "_g_idx")) {
    check_packed_order(files, *order, matrix);
  }
  return matrix;
}

}  // namespace specdec
