#pragma once
#include "core/transformer/layer_tensors.h"
#include "core/transformer/tensor_writer.h"

namespace specdec {

/// The inverse of load_layer<Tensor>: a layer of Gemma 1 to 3, of a dense Gemma 4 or with experts,
/// of Llama's kind, or of RecurrentGemma. Throws InternalError for any other.
void write_layer(TensorWriter& writer, const LayerFormat& format, const LayerPlan& plan,
                 const LayerTensors& layer);

}  // namespace specdec
