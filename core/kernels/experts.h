#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "core/kernels/gated_activation.h"
#include "core/kernels/linear.h"

namespace specdec {

/// Which experts each token goes to, the likeliest first.
struct Routes {
  Tensor experts;  ///< [n, chosen] int32
  Tensor weights;  ///< [n, chosen] what their outputs are multiplied with
};

/// Chooses experts by the router's logits [n, count]: the `chosen` likeliest of softmax(logits),
/// their probabilities divided by their sum, times output_scale [count] of each. Of equal ones the
/// lower number goes first. Logits and scales are contiguous, float32 or float64.
void route(const Tensor& logits, const Tensor& output_scale, Routes& routes);

/// A layer's experts: expert e gives down[e](activation(gate) * up) of gate_up[e](x).
struct ExpertMatrices {
  const std::vector<Linear>& gate_up;
  const std::vector<Linear>& down;
  Activation activation = Activation::kGeluTanh;
};

/// Memory of apply_experts, for pairs of a token and one of its experts.
struct ExpertBuffers {
  Tensor inputs;                ///< [pairs, hidden]
  Tensor gate_up;               ///< [pairs, 2 * intermediate]
  Tensor gated;                 ///< [pairs, intermediate]
  Tensor outputs;               ///< [pairs, hidden]
  std::vector<int64_t> places;  ///< [pairs] where a pair lies, sorted by expert
  std::vector<int64_t> ends;    ///< [experts] where an expert's pairs end
};

/// out [n, hidden] = the sum of its experts' outputs for input [n, hidden], weighted. Only chosen
/// experts are evaluated, each once for all its tokens; a token's outputs are added in the order of
/// its routes, so that its bits depend on no other token.
void apply_experts(const ExpertMatrices& experts, const Tensor& input, const Routes& routes,
                   ExpertBuffers& buffers, Tensor& out);

}  // namespace specdec
