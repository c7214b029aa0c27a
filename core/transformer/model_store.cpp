#include "core/transformer/model_store.h"

namespace specdec {

std::vector<LayerKv> cache_layers(const std::vector<LayerPlan>& plan) {
  std::vector<LayerKv> layers;
  layers.reserve(plan.size());
  for (const LayerPlan& layer : plan) {
    layers.push_back({.kv_heads = layer.kv_heads,
                      .head_dim = layer.head_dim,
                      .window = layer.window,
                      .source_layer = layer.kv_source,
                      .state_size = state_size(layer)});
  }
  return layers;
}

std::unique_ptr<KvStore> make_store(const TransformerWeights& weights, const KvStoreFactory& make,
                                    int64_t max_length) {
  return make(cache_layers(weights.plan),
              {.dtype = weights.compute_dtype(),
               .device = weights.place.device,
               .max_length = max_length > 0 ? max_length : weights.config.max_position_embeddings});
}

}  // namespace specdec
