#include "core/transformer/heads/head_layer.h"

#include <ATen/ATen.h>

namespace specdec {

LayerPlan head_layer_plan(LayerPlan target) {
  const LayerPlan plain;
  target.kv_source = plain.kv_source;
  target.values = plain.values;
  target.value_norm = plain.value_norm;
  target.layer_scalar = plain.layer_scalar;
  target.per_layer_size = plain.per_layer_size;
  target.per_layer_index = plain.per_layer_index;
  target.experts = plain.experts;
  target.sparsity_cut = plain.sparsity_cut;
  target.laurel_rank = plain.laurel_rank;
  target.altup = plain.altup;
  target.rope.rotated_pairs = plain.rope.rotated_pairs;
  return target;
}

std::unique_ptr<TransformerModel> make_layer_engine(const std::vector<HeadLayer>& layers,
                                                    const TransformerWeights& target,
                                                    const KvStoreFactory& store,
                                                    const TransformerOptions& options) {
  auto weights = std::make_shared<TransformerWeights>();
  weights->weight_dtype = target.weight_dtype;
  weights->place = target.place;
  weights->config = target.config;
  weights->config.num_layers = std::ssize(layers);
  weights->config.rms_norm_eps = layers.front().rms_norm_eps;
  for (const HeadLayer& layer : layers) {
    weights->plan.push_back(layer.plan);
    weights->layers.push_back(pack(layer.weights, head_packing(target)));
  }
  weights->embedding = target.embedding;
  TransformerOptions engine = options;
  engine.results_on_host = false;
  return std::make_unique<TransformerModel>(std::move(weights), store, engine);
}

std::vector<Tensor*> parameters(HeadLayer& layer) {
  LayerTensors& w = layer.weights;
  std::vector<Tensor*> all;
  for (Tensor* tensor :
       {&w.qkv, &w.output, &w.gate_up, &w.down, &w.attention_norm, &w.attention_post_norm,
        &w.mlp_norm, &w.mlp_post_norm, &w.q_norm, &w.k_norm}) {
    if (tensor->defined()) {
      all.push_back(tensor);
    }
  }
  return all;
}

LayerReference layer_reference(const HeadLayer& layer, const TransformerInfo& target,
                               std::optional<at::ScalarType> matmul_dtype) {
  const at::ScalarType dtype = target.compute_dtype();
  return {layer.plan,
          layer.weights,
          layer.rms_norm_eps,
          /*bidirectional=*/false,
          dtype,
          matmul_dtype.value_or(dtype)};
}

}  // namespace specdec
