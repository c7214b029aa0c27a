#include "core/gemma/layer_plan.h"

namespace specdec {

std::vector<LayerPlan> make_layer_plan(const GemmaConfig& config) {
  std::vector<LayerPlan> plan;
  for (const bool sliding : config.sliding_layers) {
    LayerPlan layer;
    layer.heads = config.num_heads;
    layer.kv_heads = config.num_kv_heads;
    layer.head_dim = config.head_dim;
    layer.intermediate_size = config.intermediate_size;
    layer.window = sliding ? config.sliding_window : 0;
    layer.query_scale = config.query_scale;
    layer.soft_cap = config.attention_soft_cap;
    layer.rope = sliding ? config.local_rope : config.global_rope;
    layer.qk_norm = config.family == GemmaFamily::kGemma3;
    layer.post_norms = config.family != GemmaFamily::kGemma1;
    plan.push_back(layer);
  }
  return plan;
}

}  // namespace specdec
