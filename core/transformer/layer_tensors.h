#pragma once
#include <string>

#include "core/transformer/tensor_source.h"
#include "core/transformer/tensor_writer.h"
#include "core/transformer/weights.h"

namespace specdec {

/// How a checkpoint names and stores one layer.
struct LayerFormat {
  std::string prefix;        ///< "model.layers.3."
  double norm_offset = 1.0;  ///< a stored scale w means norm_offset + w: Gemma 1, Llama 0
  /// The norm of the residual stream before attention; "" = the layer has none.
  std::string attention_norm = "input_layernorm";
};

/// Loads and checks the tensors of a layer, q/k/v and gate/up fused. Matrices get `dtype`, norms
/// `compute_dtype`.
LayerWeights load_layer(TensorSource& source, const LayerFormat& format, const LayerPlan& plan,
                        int64_t hidden_size, at::TensorOptions matrix,
                        at::ScalarType compute_dtype);
/// The inverse.
void write_layer(TensorWriter& writer, const LayerFormat& format, const LayerPlan& plan,
                 const LayerWeights& layer);

}  // namespace specdec
