#pragma once
#include <ATen/core/Tensor.h>

namespace specdec {

using at::Tensor;

/// Cuts the gate half of gate_up [n, 2 * size] in place, before its activation: gate = max(gate -
/// (mean + deviations * sd), 0), with mean and (population) standard deviation over the row's gate.
/// Gemma 3n's activation sparsity. Contiguous, float32 or float64.
void cut_gate(Tensor& gate_up, double deviations);

}  // namespace specdec
