#include "core/families/description.h"

#include <nlohmann/json.hpp>

namespace specdec {
namespace {

using nlohmann::json;

json rope_text(const RopeConfig& rope) {
  json text = {{"theta", rope.theta}, {"factor", rope.factor}, {"divisors", rope.divisors}};
  if (rope.rotated_pairs > 0) {
    text["rotated_pairs"] = rope.rotated_pairs;
  }
  if (rope.exponent_dims > 0) {
    text["exponent_dims"] = rope.exponent_dims;
  }
  return text;
}

/// What only some families' layers have: absent where a layer has none of it.
void add_family_text(const LayerPlan& layer, json& text) {
  const LayerPlan plain;
  const auto add = [&text](const char* key, const auto& value, const auto& usual) {
    if (value != usual) {
      text[key] = value;
    }
  };
  add("kv_source", layer.kv_source, plain.kv_source);
  add("raw_key_values", layer.values == ValueKind::kRawKeys, false);
  add("value_norm", layer.value_norm, plain.value_norm);
  add("layer_scalar", layer.layer_scalar, plain.layer_scalar);
  add("per_layer_size", layer.per_layer_size, plain.per_layer_size);
  add("experts", layer.experts.count, plain.experts.count);
  add("chosen_experts", layer.experts.chosen, plain.experts.chosen);
  add("expert_size", layer.experts.intermediate_size, plain.experts.intermediate_size);
  add("streams", layer.altup.streams, plain.altup.streams);
  add("active_stream", layer.altup.active, plain.altup.active);
  add("correct_scale", layer.altup.correct_scale, plain.altup.correct_scale);
  add("convolution_width", layer.recurrence.convolution_width, int64_t{0});
  add("laurel_rank", layer.laurel_rank, plain.laurel_rank);
  if (layer.sparsity_cut) {
    text["sparsity_cut"] = *layer.sparsity_cut;
  }
}

}  // namespace

std::string description_text(const ModelDescription& description) {
  const TransformerConfig& config = description.config;
  json layers = json::array();
  for (const LayerPlan& layer : description.plan) {
    json text = {{"heads", layer.heads},       {"kv_heads", layer.kv_heads},
                 {"head_dim", layer.head_dim}, {"intermediate_size", layer.intermediate_size},
                 {"window", layer.window},     {"query_scale", layer.query_scale},
                 {"soft_cap", layer.soft_cap}, {"rope", rope_text(layer.rope)}};
    add_family_text(layer, text);
    layers.push_back(std::move(text));
  }
  json text = {{"family", config.family},
               {"vocab_size", config.vocab_size},
               {"hidden_size", config.hidden_size},
               {"rms_norm_eps", config.rms_norm_eps},
               {"tied", config.tie_word_embeddings},
               {"layers", layers}};
  if (description.scaled_embedding) {  // Gemma
    text["final_soft_cap"] = config.final_soft_cap;
  }
  return text.dump();
}

}  // namespace specdec
