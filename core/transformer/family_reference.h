#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "core/transformer/reference.h"

namespace specdec {

/// The reference_forward of Gemma 3n, 4 and RecurrentGemma: layers that read keys and values of
/// others, experts, per-layer inputs, AltUp, Laurel and recurrences, in ATen ops alone. Of AltUp,
/// `layers` are the active stream's. Differentiable but for the per-layer table, which is only
/// looked up.
ReferenceResult family_reference_forward(const TransformerTensors& weights, const Tensor& tokens,
                                         std::optional<at::ScalarType> matmul_dtype = std::nullopt);

}  // namespace specdec
