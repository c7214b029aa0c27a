#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/kernels/panels.h"

/// What the kernels' tasks hold, from tensors.
namespace specdec::cuda {

/// A size as kernels take it; a broken precondition where it has more than 31 bits.
int32_t narrow(int64_t number);
/// A format that kernels take: throws Error for float64.
WeightFormat kernel_format(WeightFormat format);
/// Contiguous float32 numbers; anything else is a broken precondition.
const float* floats(const at::Tensor& tensor);
float* floats_of(at::Tensor& tensor);
/// Numbers of a tensor as of floats(); nullptr for an undefined one.
const float* floats_or_null(const at::Tensor& tensor);
const int32_t* integers(const at::Tensor& tensor);
/// Rows of a tensor whose last dimension is a row.
int64_t rows_of(const at::Tensor& tensor);

}  // namespace specdec::cuda
