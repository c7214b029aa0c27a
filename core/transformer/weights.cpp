#include "core/transformer/weights.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {
namespace {

/// Everything but the matrices.
template <class To, class From>
LayerOf<To> vectors_of(const LayerOf<From>& layer) {
  LayerOf<To> out;
  out.attention_norm = layer.attention_norm;
  out.attention_post_norm = layer.attention_post_norm;
  out.mlp_norm = layer.mlp_norm;
  out.mlp_post_norm = layer.mlp_post_norm;
  out.q_norm = layer.q_norm;
  out.k_norm = layer.k_norm;
  out.qkv_bias = layer.qkv_bias;
  out.output_bias = layer.output_bias;
  out.gate_up_bias = layer.gate_up_bias;
  out.down_bias = layer.down_bias;
  return out;
}

LayerTensors unpack(const LayerWeights& layer) {
  LayerTensors out = vectors_of<Tensor>(layer);
  out.qkv = layer.qkv.unpack();
  out.output = layer.output.unpack();
  out.gate_up = layer.gate_up.unpack();
  out.down = layer.down.unpack();
  return out;
}

}  // namespace

Linear pack(const Tensor& matrix, const PackOptions& options, const Tensor& bias) {
  Linear linear(matrix, weight_format(options.dtype.value_or(matrix.scalar_type())), bias);
  linear.set_activations(options.activations);
  return linear;
}

LayerWeights pack(const LayerTensors& layer, const PackOptions& options) {
  LayerWeights out = vectors_of<Linear>(layer);
  out.qkv = pack(layer.qkv, options, layer.qkv_bias);
  out.output = pack(layer.output, options, layer.output_bias);
  out.gate_up = pack(layer.gate_up, options, layer.gate_up_bias);
  out.down = pack(layer.down, options, layer.down_bias);
  return out;
}

std::shared_ptr<TransformerWeights> pack(const TransformerTensors& model,
                                         const PackOptions& options) {
  auto weights = std::make_shared<TransformerWeights>();
  static_cast<TransformerInfo&>(*weights) = model;
  weights->weight_dtype = options.dtype.value_or(model.weight_dtype);
  weights->activations = options.activations;
  weights->embedding = pack(model.embedding, options);
  weights->head =
      model.head.is_same(model.embedding) ? weights->embedding : pack(model.head, options);
  for (const LayerTensors& layer : model.layers) {
    weights->layers.push_back(pack(layer, options));
  }
  return weights;
}

PackOptions head_packing(const TransformerWeights& target) {
  if (!target.layers.empty() && is_in_blocks(target.layers.front().qkv.format())) {
    return {.dtype = at::kChar, .activations = target.activations};
  }
  return {};
}

void require_blocks(ActivationFormat activations, bool has_blocks) {
  if (activations == ActivationFormat::kInt8 && !has_blocks) {
    throw ConfigError(
        "int8 needs weights in blocks, which are multiplied as integers, and this model has none: "
        "set dtype: int8, or leave activations out");
  }
}

void set_activations(TransformerWeights& weights, ActivationFormat activations) {
  std::vector<Linear*> all = {&weights.embedding, &weights.head};
  for (LayerWeights& layer : weights.layers) {
    all.insert(all.end(), {&layer.qkv, &layer.output, &layer.gate_up, &layer.down});
  }
  const auto cannot = std::stable_partition(
      all.begin(), all.end(), [](const Linear* linear) { return linear->has_blocks(); });
  require_blocks(activations, cannot != all.begin());
  weights.activations = activations;
  std::for_each(all.begin(), cannot, [&](Linear* linear) { linear->set_activations(activations); });
}

int64_t forward_bytes(const TransformerWeights& weights) {
  int64_t bytes = weights.head.bytes();
  for (const LayerWeights& layer : weights.layers) {
    for (const Linear* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      bytes += matrix->bytes();
    }
  }
  return bytes;
}

TransformerTensors unpack(const TransformerWeights& weights) {
  TransformerTensors model;
  static_cast<TransformerInfo&>(model) = weights;
  model.embedding = weights.embedding.unpack();
  model.weight_dtype = model.embedding.scalar_type();
  model.head = weights.config.tie_word_embeddings ? model.embedding : weights.head.unpack();
  for (const LayerWeights& layer : weights.layers) {
    model.layers.push_back(unpack(layer));
  }
  return model;
}

}  // namespace specdec
