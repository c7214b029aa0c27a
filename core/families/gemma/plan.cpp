#include "core/families/gemma/plan.h"

#include "core/error.h"

namespace specdec {

TransformerConfig transformer_config(const GemmaConfig& config) {
  TransformerConfig model;
  model.family = gemma_family_name(config.family);
  model.vocab_size = config.vocab_size;
  model.hidden_size = config.hidden_size;
  model.num_layers = config.num_layers;
  model.rms_norm_eps = config.rms_norm_eps;
  model.max_position_embeddings = config.max_position_embeddings;
  model.sliding_window = config.sliding_window;
  model.tie_word_embeddings = config.tie_word_embeddings;
  model.final_soft_cap = config.final_soft_cap;
  model.bidirectional = config.bidirectional;
  model.end_ids = config.end_ids;
  model.bos_id = config.bos_id;
  return model;
}

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

ModelDescription describe_gemma(const GemmaConfig& config) {
  return {.config = transformer_config(config),
          .plan = make_layer_plan(config),
          .norm_offset = kGemmaNormOffset,
          .scaled_embedding = true,
          .text = gemma_config_json(config)};
}

GemmaConfig gemma_config(const TransformerConfig& model, const std::vector<LayerPlan>& plan) {
  SPECDEC_CHECK(!plan.empty(), "gemma_config: there are no layers");
  GemmaConfig config;
  for (const GemmaFamily family :
       {GemmaFamily::kGemma1, GemmaFamily::kGemma2, GemmaFamily::kGemma3}) {
    if (gemma_family_name(family) == model.family) {
      config.family = family;
    }
  }
  config.vocab_size = model.vocab_size;
  config.hidden_size = model.hidden_size;
  config.num_layers = model.num_layers;
  config.rms_norm_eps = model.rms_norm_eps;
  config.max_position_embeddings = model.max_position_embeddings;
  config.sliding_window = model.sliding_window;
  config.tie_word_embeddings = model.tie_word_embeddings;
  config.final_soft_cap = model.final_soft_cap;
  config.bidirectional = model.bidirectional;
  config.end_ids = model.end_ids;
  config.bos_id = model.bos_id;
  const LayerPlan& first = plan.front();
  config.intermediate_size = first.intermediate_size;
  config.num_heads = first.heads;
  config.num_kv_heads = first.kv_heads;
  config.head_dim = first.head_dim;
  config.query_scale = first.query_scale;
  config.attention_soft_cap = first.soft_cap;
  for (const LayerPlan& layer : plan) {
    config.sliding_layers.push_back(layer.window > 0);
    (layer.window > 0 ? config.local_rope : config.global_rope) = layer.rope;
  }
  return config;
}

}  // namespace specdec
