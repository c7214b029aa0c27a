#pragma once
#include <ATen/core/Tensor.h>

#include "core/kernels/row_range.h"

namespace specdec {

using at::Tensor;

/// What a gated MLP (Shazeer, 2020, arXiv:2002.05202) applies to its gate.
enum class Activation {
  kGeluTanh,  ///< x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))): Gemma
  kSilu,      ///< x / (1 + exp(-x)): Llama
};

/// activation(gate) * up of a fused projection: gate_up [n, 2 * size] (gate first) -> out [n,
/// size]; both contiguous, float32 or float64.
void gated_activation(const Tensor& gate_up, Activation activation, Tensor& out);
/// Computes gated_activation for some of the rows; the others of `out` stay as they are.
void gated_activation(const Tensor& gate_up, Activation activation, const RowRange& rows,
                      Tensor& out);

}  // namespace specdec
