#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/formats/safetensors.h"
#include "core/kernels/panels.h"

namespace specdec {

/// A tensor over the mapped bytes of a checkpoint, which lives as long as they do. Only copy from
/// it: ATen has no read-only tensors.
at::Tensor mapped_tensor(const TensorEntry& entry);

/// The dtype of plain numbers of a file; kLong for what has no dtype of its own.
at::ScalarType stored_scalar_type(DType dtype);

/// The type of a file's numbers, or blocks, that have the values of a format.
DType stored_dtype(WeightFormat format);

/// Entries `first` to `first + count` along the first dimension, as stored; blocks as float32. The
/// tensor may share the mapped bytes.
at::Tensor stored_rows(const TensorEntry& entry, int64_t first, int64_t count);

/// Rows of a matrix of int8 codes, each part of a row times its scale, as float32.
at::Tensor scaled_rows(const TensorEntry& codes, const TensorEntry& scales, int64_t first,
                       int64_t count);

/// Rows, whole groups of so many, without TensorEntry::interleaved_rows.
at::Tensor deinterleaved(const at::Tensor& rows, int64_t group);

}  // namespace specdec
