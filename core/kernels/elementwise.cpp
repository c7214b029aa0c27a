#include "core/kernels/elementwise.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "core/kernels/checks.h"
#include "core/kernels/team.h"

#define SPECDEC_SIMD_BODY "core/kernels/simd/elementwise_simd.h"
#include "core/kernels/simd/for_each_simd.h"

namespace specdec {
namespace {

constexpr int64_t kTileValues = 4096;
constexpr double kNanosecondsPerValue = 0.2;  // memory is read and written

/// body(first, size) for parts of `count` values.
template <class Body>
void for_parts(int64_t count, const Body& body) {
  const int64_t tiles = (count + kTileValues - 1) / kTileValues;
  const int64_t grain = tile_grain(tiles, kNanosecondsPerValue * kTileValues);
  parallel_tiles(tiles, grain, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kTileValues;
    body(first, std::min(end * kTileValues, count) - first);
  });
}

template <class T>
void add_values(const Tensor& input, Tensor& sum) {
  const T* from = input.const_data_ptr<T>();
  T* to = sum.mutable_data_ptr<T>();
  for_parts(sum.numel(), [&](int64_t first, int64_t size) {
    SPECDEC_SIMD_CALL(add_values, from + first, to + first, size);
  });
}

template <class T>
void add_to_rows(const Tensor& row, const RowRange& rows, Tensor& sum) {
  const T* from = row.const_data_ptr<T>();
  const int64_t size = row.size(0);
  T* to = sum.mutable_data_ptr<T>() + rows.begin * size;
  const int64_t grain = tile_grain(rows.count(), kNanosecondsPerValue * static_cast<double>(size));
  parallel_tiles(rows.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      SPECDEC_SIMD_CALL(add_values, from, to + n * size, size);
    }
  });
}

template <class T>
void multiply_rows(const Tensor& input, const Tensor& row, Tensor& out) {
  const int64_t size = row.size(0);
  const T* factors = row.const_data_ptr<T>();
  const int64_t grain = tile_grain(input.size(0), kNanosecondsPerValue * static_cast<double>(size));
  parallel_tiles(input.size(0), grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* from = input.const_data_ptr<T>() + n * size;
      T* to = out.mutable_data_ptr<T>() + n * size;
      std::transform(from, from + size, factors, to, std::multiplies<>());
    }
  });
}

template <class T>
void scale_values(const Tensor& input, double factor, Tensor& out) {
  const T* from = input.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  for_parts(out.numel(), [&](int64_t first, int64_t size) {
    SPECDEC_SIMD_CALL(scale_values, from + first, static_cast<T>(factor), to + first, size);
  });
}

void check(const char* op, const Tensor& input, const Tensor& out) {
  check_cpu(input);
  SPECDEC_CHECK(is_float_or_double(input) && is_plain(input, input.scalar_type()) &&
                    is_plain(out, input.scalar_type()),
                "{}: operands should be contiguous, both float32 or both float64", op);
}

}  // namespace

void add_to(Tensor& sum, const Tensor& input) {
  check("add_to", input, sum);
  SPECDEC_CHECK(sum.sizes() == input.sizes(), "add_to: operands of different shapes");
  if (input.scalar_type() == at::kDouble) {
    add_values<double>(input, sum);
  } else {
    add_values<float>(input, sum);
  }
}

void add_to_rows(Tensor& sum, const RowRange& rows, const Tensor& row) {
  check("add_to_rows", row, sum);
  SPECDEC_CHECK(sum.dim() == 2 && row.dim() == 1 && sum.size(1) == row.size(0) && rows.begin >= 0 &&
                    rows.begin <= rows.end && rows.end <= sum.size(0),
                "add_to_rows: sum should be [n, size], row [size], rows {} to {} some of n",
                rows.begin, rows.end);
  if (row.scalar_type() == at::kDouble) {
    add_to_rows<double>(row, rows, sum);
  } else {
    add_to_rows<float>(row, rows, sum);
  }
}

void scaled_copy(const Tensor& input, double factor, Tensor& out) {
  check("scaled_copy", input, out);
  SPECDEC_CHECK(out.sizes() == input.sizes(), "scaled_copy: operands of different shapes");
  if (input.scalar_type() == at::kDouble) {
    scale_values<double>(input, factor, out);
  } else {
    scale_values<float>(input, factor, out);
  }
}

void multiply_rows(const Tensor& input, const Tensor& row, Tensor& out) {
  check("multiply_rows", input, out);
  SPECDEC_CHECK(input.dim() == 2 && out.sizes() == input.sizes() &&
                    is_plain(row, input.scalar_type()) && row.numel() == input.size(1),
                "multiply_rows: input and out should be [n, size], row [size]");
  if (input.scalar_type() == at::kDouble) {
    multiply_rows<double>(input, row, out);
  } else {
    multiply_rows<float>(input, row, out);
  }
}

void gather_rows(const Tensor& input, const Tensor& rows, Tensor& out) {
  check("gather_rows", input, out);
  SPECDEC_CHECK(input.dim() == 2 && out.dim() == 2 && input.size(1) == out.size(1) &&
                    is_plain(rows, at::kInt) && rows.numel() == out.size(0),
                "gather_rows: input should be [m, width], rows [n] int32 and out [n, width]");
  const auto bytes = static_cast<size_t>(input.size(1) * input.element_size());
  const auto* from = static_cast<const char*>(input.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  for (int64_t i = 0; i < out.size(0); ++i) {
    const int64_t row = rows.const_data_ptr<int32_t>()[i];
    SPECDEC_CHECK(row >= 0 && row < input.size(0), "gather_rows: row {} of {}", row, input.size(0));
    std::memcpy(to + static_cast<size_t>(i) * bytes, from + static_cast<size_t>(row) * bytes,
                bytes);
  }
}

void copy_columns(const Tensor& input, int64_t first, Tensor& out) {
  check("copy_columns", input, out);
  SPECDEC_CHECK(input.dim() == 2 && out.dim() == 2 && input.size(0) == out.size(0) && first >= 0 &&
                    first + input.size(1) <= out.size(1),
                "copy_columns: input [n, width] should fit into out [n, wider] from column {} on",
                first);
  const auto bytes = static_cast<size_t>(input.element_size());
  const size_t width = static_cast<size_t>(input.size(1)) * bytes;
  const size_t stride = static_cast<size_t>(out.size(1)) * bytes;
  const auto* from = static_cast<const char*>(input.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr()) + static_cast<size_t>(first) * bytes;
  const int64_t grain =
      tile_grain(input.size(0), kNanosecondsPerValue * static_cast<double>(input.size(1)));
  parallel_tiles(input.size(0), grain, [&](int64_t begin, int64_t end) {
    for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
      std::memcpy(to + row * stride, from + row * width, width);
    }
  });
}

}  // namespace specdec
