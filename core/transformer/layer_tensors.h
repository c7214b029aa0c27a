#pragma once
#include <string>

#include "core/transformer/matrix_tensors.h"
#include "core/transformer/tensor_source.h"
#include "core/transformer/weights.h"

namespace specdec {

/// How a checkpoint names and stores one layer.
struct LayerFormat {
  std::string prefix;        ///< "model.layers.3."
  double norm_offset = 0.0;  ///< a stored scale w means norm_offset + w: Gemma 1, Llama 0
  /// The norm of the residual stream before attention; "" = the layer has none.
  std::string attention_norm = "input_layernorm";
  /// The norm before the MLP of a layer without norms after attention and MLP (post_norms).
  std::string mlp_norm = "post_attention_layernorm";
};

/// Loads and checks the tensors of a layer, q/k/v and gate/up fused, as load_matrix does. Keys and
/// values of a layer that reads another's are skipped where the file has them. Norms get the
/// compute dtype that goes with the matrices' dtype.
template <class Matrix>
LayerOf<Matrix> load_layer(TensorSource& source, const LayerFormat& format, const LayerPlan& plan,
                           int64_t hidden_size, const MatrixFormat& matrices);

}  // namespace specdec
