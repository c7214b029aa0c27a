#pragma once
#include "core/kernels/linear.h"

namespace specdec {

/// Rows of a weight of one part, on its device: ids [n] int32 or int64 in 0 .. out - 1 -> [n, in]
/// of compute_dtype.
Tensor linear_rows(const Linear& weight, const Tensor& ids);
/// Rows of a part, whose first output is number 0.
Tensor linear_rows(const Linear& weight, const Linear::Part& part, const Tensor& ids);

/// out [n, in] = factor * rows of a weight of one part, as a tied embedding looks them up: ids [n]
/// int32 in 0 .. out - 1. On the CPU, in panels; out is contiguous, of compute_dtype. Allocates
/// nothing.
void embed_rows(const Linear& table, const Tensor& ids, double factor, Tensor& out);

}  // namespace specdec
