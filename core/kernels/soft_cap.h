#pragma once
#include <ATen/core/Tensor.h>

namespace specdec {

using at::Tensor;

/// x = cap * tanh(x / cap) in place: [n, size], contiguous, float32 or float64. A value's bits do
/// not depend on how many others there are or where it lies among them.
void soft_cap(Tensor& values, double cap);

}  // namespace specdec
