#pragma once
#include <ATen/core/Tensor.h>

namespace specdec {

using at::Tensor;

/// How the layers' own inputs of each token are made (Gemma 3n, 4 E).
struct PerLayerOptions {
  Tensor norm;                 ///< [size] of the context's part
  double eps = 0.0;            ///< of the norm
  double context_scale = 1.0;  ///< 1 / sqrt(hidden), before the norm
};

/// Joins two parts of each layer's input: out [layers, n, size] = (rms_norm(context_scale *
/// context) + token) / sqrt(2): context [n, layers * size] is the projection of the embedding,
/// token [n, layers * size] its row of the per-layer table. Contiguous, all float32 or all float64.
void per_layer_inputs(const Tensor& context, const Tensor& token, const PerLayerOptions& options,
                      Tensor& out);

}  // namespace specdec
