#pragma once
#include <ATen/core/Tensor.h>

#include "core/kernels/row_range.h"

namespace specdec {

using at::Tensor;

// All operands are contiguous, all float32 or all float64.

/// sum += input, of the same shape.
void add_to(Tensor& sum, const Tensor& input);

/// Each of some rows of sum [n, size] += row [size].
void add_to_rows(Tensor& sum, const RowRange& rows, const Tensor& row);

/// out = factor * input, of the same shape.
void scaled_copy(const Tensor& input, double factor, Tensor& out);

/// Row i of out [n, width] = row rows[i] of input [m, width]; rows [n] int32, below m.
void gather_rows(const Tensor& input, const Tensor& rows, Tensor& out);

/// input [n, width] becomes columns first .. first + width - 1 of out [n, wider].
void copy_columns(const Tensor& input, int64_t first, Tensor& out);

/// out [n, size] = input * row [size].
void multiply_rows(const Tensor& input, const Tensor& row, Tensor& out);

}  // namespace specdec
