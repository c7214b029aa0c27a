#pragma once
#include <functional>
#include <memory>

#include "core/families/description.h"
#include "core/transformer/layer_tensors.h"
#include "core/transformer/weights.h"

namespace specdec {

/// A layer of a checkpoint, as load_layer takes it; borrows source and plan.
struct LayerToLoad {
  TensorSource& source;
  LayerFormat format;
  const LayerPlan& plan;
  int64_t hidden_size;
  MatrixFormat matrices;

  template <class Matrix>
  LayerOf<Matrix> load() const {
    return load_layer<Matrix>(source, format, plan, hidden_size, matrices);
  }
};

/// What becomes of a layer in place of LayerToLoad::load.
template <class Matrix>
using MakeLayer = std::function<LayerOf<Matrix>(const LayerToLoad& layer)>;

/// Loads a model as plain tensors (Matrix = Tensor) or laid out for the forward (Linear), or
/// measures it (MatrixSize). Layers are loaded in order, after all else but the final norm.
template <class Matrix>
std::shared_ptr<TransformerOf<Matrix>> load_from(TensorSource& source,
                                                 const ModelDescription& model,
                                                 const LoadOptions& options,
                                                 const MakeLayer<Matrix>& make_layer = {});

/// Factor of a model's embeddings: 1, or with scaled_embedding sqrt(hidden_size), rounded to
/// bfloat16 where bfloat16_scale says so, else to `compute_dtype`, that of the activations.
double embedding_scale(const ModelDescription& model, at::ScalarType compute_dtype);

}  // namespace specdec
