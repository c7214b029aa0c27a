#include "core/transformer/weights.h"

namespace specdec {
namespace {

Linear packed(const Tensor& matrix) { return {matrix, weight_format(matrix.scalar_type())}; }

/// Everything but the matrices.
template <class To, class From>
LayerOf<To> norms_of(const LayerOf<From>& layer) {
  LayerOf<To> out;
  out.attention_norm = layer.attention_norm;
  out.attention_post_norm = layer.attention_post_norm;
  out.mlp_norm = layer.mlp_norm;
  out.mlp_post_norm = layer.mlp_post_norm;
  out.q_norm = layer.q_norm;
  out.k_norm = layer.k_norm;
  return out;
}

LayerTensors unpack(const LayerWeights& layer) {
  LayerTensors out = norms_of<Tensor>(layer);
  out.qkv = layer.qkv.unpack();
  out.output = layer.output.unpack();
  out.gate_up = layer.gate_up.unpack();
  out.down = layer.down.unpack();
  return out;
}

}  // namespace

LayerWeights pack(const LayerTensors& layer) {
  LayerWeights out = norms_of<Linear>(layer);
  out.qkv = packed(layer.qkv);
  out.output = packed(layer.output);
  out.gate_up = packed(layer.gate_up);
  out.down = packed(layer.down);
  return out;
}

std::shared_ptr<TransformerWeights> pack(const TransformerTensors& model) {
  auto weights = std::make_shared<TransformerWeights>();
  static_cast<TransformerInfo&>(*weights) = model;
  weights->embedding = packed(model.embedding);
  weights->head = model.head.is_same(model.embedding) ? weights->embedding : packed(model.head);
  for (const LayerTensors& layer : model.layers) {
    weights->layers.push_back(pack(layer));
  }
  return weights;
}

TransformerTensors unpack(const TransformerWeights& weights) {
  TransformerTensors model;
  static_cast<TransformerInfo&>(model) = weights;
  model.embedding = weights.embedding.unpack();
  model.head = weights.config.tie_word_embeddings ? model.embedding : weights.head.unpack();
  for (const LayerWeights& layer : weights.layers) {
    model.layers.push_back(unpack(layer));
  }
  return model;
}

}  // namespace specdec
