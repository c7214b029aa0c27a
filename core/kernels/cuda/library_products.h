#pragma once
#include "core/kernels/linear.h"

namespace specdec::cuda {

/// The columns of `out` that a part in fragments has, as Ops::linear has them, by LibTorch, which
/// calls cuBLAS on a GPU: on the default stream. The weights are unpacked to bfloat16 numbers,
/// which are let go behind the product, and inputs are two such numbers each, whose sums are
/// float32: so LibTorch's TF32 plays no part.
void library_product(const Linear& weight, const Linear::Part& part, const Tensor& input,
                     Tensor& out);

}  // namespace specdec::cuda
