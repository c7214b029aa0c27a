#include "core/transformer/heads/eagle_layer_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "core/transformer/heads/head_files.h"
#include "core/transformer/heads/head_layer_config.h"
#include "core/transformer/layer_types.h"

namespace specdec {
namespace {

using nlohmann::json;

/// The model_type that says it.
const char* style_name(LayerStyle style) {
  switch (style) {
    case LayerStyle::kLlama:
      return "llama";
    case LayerStyle::kQwen3:
      return "qwen3";
    case LayerStyle::kGemma:
      return "gemma3_text";
    case LayerStyle::kGemma4:
      return "gemma4_text";
  }
  return "";
}

LayerStyle read_style(const JsonKeys& keys) {
  const std::string type = keys.text("model_type", "llama");
  for (const LayerStyle style :
       {LayerStyle::kLlama, LayerStyle::kQwen3, LayerStyle::kGemma, LayerStyle::kGemma4}) {
    if (type == style_name(style)) {
      return style;
    }
  }
  if (type != "gemma4_unified_text") {
    keys.fail("model_type", fmt::format("is '{}'; layers of heads are 'llama', 'qwen3', "
                                        "'gemma3_text' or 'gemma4_text'",
                                        type));
  }
  return LayerStyle::kGemma4;
}

constexpr const char* kLlama3Keys[] = {"low_freq_factor", "high_freq_factor",
                                       "original_max_position_embeddings"};

/// A key that describes a rotation in another way than is computed here would change the result.
void check_rope_keys(const JsonKeys& rope) {
  std::set<std::string> known = {"rope_theta", "rope_type", "type", "factor"};
  if (rope_type(rope) == "proportional") {
    known.insert("partial_rotary_factor");
  }
  if (rope_type(rope) == "llama3") {
    known.insert(std::begin(kLlama3Keys), std::end(kLlama3Keys));
  }
  for (const std::string& key : rope.names()) {
    if (known.count(key) == 0 && rope.has(key.c_str())) {
      rope.fail(key,
                "is not supported; known: rope_theta, rope_type (default, linear, llama3), factor; "
                "with llama3 low_freq_factor, high_freq_factor, original_max_position_embeddings; "
                "in layers of gemma4_text proportional, with partial_rotary_factor");
    }
  }
}

void read_rotation(const JsonKeys& keys, EagleConfig& config) {
  RopeConfig& rope = config.plan.rope;
  check_rope_keys(keys);
  rope.theta = keys.positive_number("rope_theta", rope.theta);
  const std::string type = rope_type(keys);
  if (type == "linear") {
    rope.factor = keys.positive_number("factor");
  } else if (type == "llama3") {
    config.llama3_rope = read_llama3_rope(keys, std::nullopt);
  } else if (type == "proportional" && config.style == LayerStyle::kGemma4) {
    read_proportional_rope(keys, config.plan);
  } else if (type != "default") {
    keys.fail("rope_type", fmt::format("is '{}'; supported: default, linear, llama3", type));
  }
}

/// transformers 4 has rope_theta and rope_scaling, transformers 5 rope_parameters, which may be
/// nested by the kind of layer.
void read_rope(const JsonKeys& keys, EagleConfig& config) {
  LayerPlan& plan = config.plan;
  if (config.style == LayerStyle::kGemma4 && !keys.has("rope_parameters")) {
    keys.fail("rope_parameters", "is missing; layers of gemma4_text have it");
  }
  plan.rope.theta = keys.positive_number("rope_theta", 1e4);
  if (keys.has("rope_scaling")) {
    read_rotation(keys.object("rope_scaling"), config);
  }
  if (keys.has("rope_parameters")) {
    const JsonKeys parameters = keys.object("rope_parameters");
    const char* kind = plan.window > 0 ? "sliding_attention" : "full_attention";
    const bool nested = parameters.has("sliding_attention") || parameters.has("full_attention");
    read_rotation(nested ? parameters.object(kind) : parameters, config);
  }
  if (config.llama3_rope) {
    plan.rope.divisors = llama3_divisors(*config.llama3_rope, plan.rope.theta, plan.head_dim);
  }
}

/// Window of all layers; 0 = they see everything. layer_types and use_sliding_window say whether
/// the window is used.
int64_t read_window(const JsonKeys& keys, int64_t layers) {
  bool used = keys.boolean("use_sliding_window", true);
  if (keys.has("layer_types")) {
    const json& types = keys.at("layer_types");
    const bool equal = types.is_array() && std::ssize(types) == layers &&
                       std::count(types.begin(), types.end(), types.front()) == layers;
    const json type = equal ? types.front() : json();
    if (type != "sliding_attention" && type != "full_attention") {
      keys.fail("layer_types",
                fmt::format("should be a list of {} equal types: \"sliding_attention\" or "
                            "\"full_attention\"",
                            layers));
    }
    used = type == "sliding_attention";
    return used ? keys.positive("sliding_window") : 0;
  }
  return used && keys.has("sliding_window") ? keys.positive("sliding_window") : 0;
}

void read_plan(const JsonKeys& keys, EagleConfig& config) {
  LayerPlan& plan = config.plan;
  const bool gemma4 = config.style == LayerStyle::kGemma4;
  read_head_layer_sizes(keys, config.hidden_size, plan);
  plan.window = read_window(keys, config.layers);
  if (gemma4 && plan.window > 0) {
    keys.fail("layer_types", "names a sliding layer; heads of gemma4_text see everything");
  }
  if (gemma4) {
    read_gemma4_sizes(keys, plan);
  }
  const double scalar = gemma4 ? 1.0 : static_cast<double>(plan.head_dim);
  plan.query_scale = 1.0 / std::sqrt(keys.positive_number("query_pre_attn_scalar", scalar));
  read_rope(keys, config);
  apply_style(config);
  plan.activation = read_head_activation(
      keys, is_gemma(config.style) ? Activation::kGeluTanh : Activation::kSilu);
}

void refuse_unsupported(const JsonKeys& layer, bool may_be_several, const EagleConfig& config) {
  refuse_layer_parts(layer);
  if (!may_be_several && layer.integer("num_hidden_layers", 1) != 1) {
    layer.fail("num_hidden_layers",
               fmt::format("is {}; a head has one layer, but for those of EAGLE-3 that name their "
                           "kind (speculators_model_type, head_type) and are not of gemma4_text. "
                           "A whole model drafts with drafter type draft_model",
                           layer.integer("num_hidden_layers")));
  }
  for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    const bool logits = std::string(cap) == "final_logit_softcapping";
    if (layer.has(cap) && !(logits && config.style == LayerStyle::kGemma4)) {
      layer.fail(cap,
                 "is set; heads with soft caps are not supported, but for the logits of "
                 "gemma4_text");
    }
  }
}

json rope_scaling_json(const EagleConfig& config) {
  if (config.llama3_rope) {
    return {{"rope_type", "llama3"},
            {"factor", config.llama3_rope->factor},
            {"low_freq_factor", config.llama3_rope->low_freq_factor},
            {"high_freq_factor", config.llama3_rope->high_freq_factor},
            {"original_max_position_embeddings", config.llama3_rope->original_positions}};
  }
  if (config.style == LayerStyle::kGemma4) {
    return {};  // in rope_parameters
  }
  const double factor = config.plan.rope.factor;
  return factor == 1.0 ? json() : json{{"rope_type", "linear"}, {"factor", factor}};
}

/// The keys that only layers of gemma4_text have.
void write_gemma4(const EagleConfig& config, json& out) {
  const LayerPlan& plan = config.plan;
  const int64_t pairs = plan.rope.rotated_pairs;
  json rope = {
      {"rope_type", "proportional"},
      {"rope_theta", plan.rope.theta},
      {"factor", plan.rope.factor},
      {"partial_rotary_factor",
       pairs == 0 ? 1.0 : 2.0 * static_cast<double>(pairs) / static_cast<double>(plan.head_dim)}};
  out["attention_k_eq_v"] = plan.values == ValueKind::kRawKeys;
  out["global_head_dim"] = plan.head_dim;
  out["layer_types"] = json::array({"full_attention"});
  out["rope_parameters"] = {{"full_attention", rope}};
  if (config.soft_cap > 0.0) {
    out["final_logit_softcapping"] = config.soft_cap;
  }
}

}  // namespace

bool is_gemma(LayerStyle style) {
  return style == LayerStyle::kGemma || style == LayerStyle::kGemma4;
}

void apply_style(EagleConfig& config) {
  LayerPlan& plan = config.plan;
  plan.qk_norm = config.style != LayerStyle::kLlama;
  plan.post_norms = is_gemma(config.style);
  plan.value_norm = plan.layer_scalar = config.style == LayerStyle::kGemma4;
  plan.joined_inputs = captures_streams(config.version);
}

void read_eagle_layer(const JsonKeys& layer, bool may_be_several, EagleConfig& config) {
  config.style = read_style(layer);
  if (!captures_streams(config.version) && config.style == LayerStyle::kGemma4) {
    layer.fail("model_type", "is gemma4_text, which only heads of EAGLE-3 have");
  }
  const bool one_of_gemma4 =
      config.version != EagleVersion::kPEagle && config.style == LayerStyle::kGemma4;
  refuse_unsupported(layer, may_be_several && !one_of_gemma4, config);
  config.layers = read_layer_count(layer, 1);
  config.hidden_size = layer.positive("hidden_size");
  config.soft_cap = layer.soft_cap("final_logit_softcapping", 0.0);
  config.rms_norm_eps = layer.rms_norm_eps();
  read_plan(layer, config);
}

void write_eagle_layer(const EagleConfig& config, json& out) {
  const LayerPlan& plan = config.plan;
  out.update({{"head_dim", plan.head_dim},
              {"hidden_act", plan.activation == Activation::kSilu ? "silu" : "gelu_pytorch_tanh"},
              {"hidden_size", config.hidden_size},
              {"intermediate_size", plan.intermediate_size},
              {"model_type", style_name(config.style)},
              {"num_attention_heads", plan.heads},
              {"num_hidden_layers", config.layers},
              {"num_key_value_heads", plan.kv_heads},
              {"query_pre_attn_scalar", query_scalar(plan.query_scale)},
              {"rms_norm_eps", config.rms_norm_eps},
              {"rope_scaling", rope_scaling_json(config)},
              {"rope_theta", plan.rope.theta},
              {"sliding_window", plan.window > 0 ? json(plan.window) : json()}});
  if (config.style == LayerStyle::kGemma4) {
    write_gemma4(config, out);
  }
}

}  // namespace specdec
