#pragma once
#include <ATen/core/Tensor.h>

namespace specdec {

using at::Tensor;

/// gelu_tanh(gate) * up of a fused projection: gate_up [n, 2 * size] (gate first) -> out [n, size].
/// gelu_tanh(x) = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))).
void geglu(const Tensor& gate_up, Tensor& out);

}  // namespace specdec
