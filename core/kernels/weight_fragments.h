#pragma once
#include <ATen/core/Tensor.h>

#include "core/kernels/panels.h"
#include "core/kernels/weight_rows.h"

namespace specdec {

// Matrices as the tensor cores of a device read them (core/kernels/cuda/fragment_formats.cuh):
// tiles of 16 outputs and chunks of 64 inputs, in which each lane of a warp finds its weights in
// one piece; the scales of blocks lie behind all weights. Zeros fill the last tiles and chunks.

/// Whether tensor cores multiply with matrices of a format.
bool has_fragments(WeightFormat format);
/// Whether matrices at a placement are rearranged so: not for Metal, which reads rows, nor on a
/// meta device, which stands for it or is not read.
bool takes_fragments(const Placement& place);
/// Bytes of a matrix [out, in] in fragments.
int64_t fragment_bytes(int64_t out, int64_t in, WeightFormat format);
/// Rearranges a matrix of the layout kRows (weight_rows.h), which has fragments. The result is
/// bytes, of one dimension, on the matrix's device.
at::Tensor pack_fragments(const at::Tensor& rows, WeightFormat format);
/// Rows, in the layout kRows, of outputs ids [n] int64 of a matrix in fragments, on the same
/// device: the inverse of pack_fragments.
at::Tensor unpack_fragments(const at::Tensor& fragments, WeightFormat format, int64_t in,
                            const at::Tensor& ids);

}  // namespace specdec
