#include "core/transformer/heads/eagle_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "core/transformer/heads/head_layer.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kAuxLayers = "eagle_aux_hidden_state_layer_ids";

void check_kind(const JsonKeys& keys, EagleVersion version) {
  const std::string wanted = eagle_version_name(version);
  const std::string found = head_kind(keys);
  if (!found.empty() && found != wanted) {
    keys.fail("head_type", fmt::format("says that this is a head of type {0}, not {1}; use drafter "
                                       "type {0}",
                                       found, wanted));
  }
}

LayerStyle read_style(const JsonKeys& keys) {
  const std::string type = keys.text("model_type", "llama");
  if (type == "llama") {
    return LayerStyle::kLlama;
  }
  if (type != "gemma3_text") {
    keys.fail("model_type",
              fmt::format("is '{}'; layers of heads are 'llama' or 'gemma3_text'", type));
  }
  return LayerStyle::kGemma;
}

void read_activation(const JsonKeys& keys, const EagleConfig& config, LayerPlan& plan) {
  const bool llama = config.style == LayerStyle::kLlama;
  const std::string usual = llama ? "silu" : "gelu_pytorch_tanh";
  const std::string name = keys.text("hidden_activation", keys.text("hidden_act", usual));
  if (name != "silu" && name != "gelu_pytorch_tanh") {
    keys.fail("hidden_act", fmt::format("is '{}'; supported: silu, gelu_pytorch_tanh", name));
  }
  plan.activation = name == "silu" ? Activation::kSilu : Activation::kGeluTanh;
}

constexpr const char* kLlama3Keys[] = {"low_freq_factor", "high_freq_factor",
                                       "original_max_position_embeddings"};

/// A key that describes a rotation in another way than is computed here would change the result.
void check_rope_keys(const JsonKeys& rope) {
  std::set<std::string> known = {"rope_theta", "rope_type", "type", "factor"};
  if (rope_type(rope) == "llama3") {
    known.insert(std::begin(kLlama3Keys), std::end(kLlama3Keys));
  }
  for (const std::string& key : rope.names()) {
    if (known.count(key) == 0 && rope.has(key.c_str())) {
      rope.fail(key,
                "is not supported; known: rope_theta, rope_type (default, linear, llama3), factor; "
                "with llama3 low_freq_factor, high_freq_factor, original_max_position_embeddings");
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
  } else if (type != "default") {
    keys.fail("rope_type", fmt::format("is '{}'; supported: default, linear, llama3", type));
  }
}

/// transformers 4 has rope_theta and rope_scaling, transformers 5 rope_parameters, which may be
/// nested by the kind of layer.
void read_rope(const JsonKeys& keys, EagleConfig& config) {
  LayerPlan& plan = config.plan;
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

/// 0 = sees everything. layer_types and use_sliding_window say whether the window is used.
int64_t read_window(const JsonKeys& keys) {
  bool used = keys.boolean("use_sliding_window", true);
  if (keys.has("layer_types")) {
    const json& types = keys.at("layer_types");
    const json type = types.is_array() && types.size() == 1 ? types.front() : json();
    if (type != "sliding_attention" && type != "full_attention") {
      keys.fail("layer_types",
                "should be a list of one type: \"sliding_attention\" or \"full_attention\"");
    }
    used = type == "sliding_attention";
    return used ? keys.positive("sliding_window") : 0;
  }
  return used && keys.has("sliding_window") ? keys.positive("sliding_window") : 0;
}

void read_plan(const JsonKeys& keys, EagleConfig& config) {
  LayerPlan& plan = config.plan;
  read_head_layer_sizes(keys, config.hidden_size, plan);
  plan.window = read_window(keys);
  const auto scalar = static_cast<double>(plan.head_dim);
  plan.query_scale = 1.0 / std::sqrt(keys.positive_number("query_pre_attn_scalar", scalar));
  read_rope(keys, config);
  plan.qk_norm = plan.post_norms = config.style == LayerStyle::kGemma;
  plan.joined_inputs = config.version == EagleVersion::kEagle3;
  read_activation(keys, config, plan);
}

std::vector<int64_t> read_ids(const JsonKeys& keys, int64_t shift) {
  const json& ids = keys.at(kAuxLayers);
  std::vector<int64_t> layers;
  for (const json& id : ids.is_array() ? ids : json::array()) {
    if (!id.is_number_integer() || id.get<int64_t>() - shift < 0 || id.get<int64_t>() > 1024) {
      keys.fail(kAuxLayers, fmt::format("holds {}, which is no layer to take a residual stream "
                                        "after",
                                        describe_json(id)));
    }
    layers.push_back(id.get<int64_t>() - shift);
  }
  if (layers.empty()) {
    keys.fail(kAuxLayers, "should be a list of layers");
  }
  return layers;
}

/// At the top of the config, id j is the input of layer j, as vLLM and speculators count; in
/// eagle_config it is the output of layer j, as SGLang and SpecForge do.
std::vector<int64_t> read_capture_layers(const JsonKeys& keys) {
  if (keys.has("eagle_config") && keys.object("eagle_config").has(kAuxLayers)) {
    return read_ids(keys.object("eagle_config"), 0);
  }
  return keys.has(kAuxLayers) ? read_ids(keys, 1) : std::vector<int64_t>();
}

void refuse_unsupported(const JsonKeys& layer) {
  if (layer.boolean("attention_bias", false)) {
    layer.fail("attention_bias", "is true; heads with biases in attention are not supported");
  }
  if (layer.integer("num_hidden_layers", 1) != 1) {
    layer.fail("num_hidden_layers",
               fmt::format("is {}; a head has one layer. A whole model drafts with drafter type "
                           "draft_model",
                           layer.integer("num_hidden_layers")));
  }
  for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (layer.has(cap)) {
      layer.fail(cap, "is set; heads with soft caps are not supported");
    }
  }
  if (layer.boolean("mlp_bias", false)) {
    layer.fail("mlp_bias", "is true; heads with biases in the MLP are not supported");
  }
  if (layer.number("partial_rotary_factor", 1.0) != 1.0) {
    layer.fail("partial_rotary_factor", "is not 1; heads turn all of a key's numbers");
  }
}

/// Which norms an EAGLE-3 head has beyond the published ones; all are off where the key is missing.
void read_norms(const JsonKeys& keys, EagleConfig& config) {
  const std::pair<const char*, bool*> flags[] = {
      {"norm_before_residual", &config.norm_before_residual},
      {"norm_before_fc", &config.norm_before_fc},
      {"fc_norm", &config.fc_norm},
      {"norm_output", &config.norm_output},
      {"embed_requires_grad", &config.own_embedding}};
  for (const auto& [key, flag] : flags) {
    *flag = keys.boolean(key, false);
    if (*flag && config.version != EagleVersion::kEagle3) {
      keys.fail(key, "is true, which only heads of EAGLE-3 know; use drafter type eagle3");
    }
  }
  if (config.fc_norm && config.norm_before_fc) {
    keys.fail("fc_norm", "and norm_before_fc are both true; a head has one or the other");
  }
}

/// Only those that are on, so that a head without them has the config that it always had.
void write_norms(const EagleConfig& config, json& out) {
  const std::pair<const char*, bool> flags[] = {
      {"norm_before_residual", config.norm_before_residual},
      {"norm_before_fc", config.norm_before_fc},
      {"fc_norm", config.fc_norm},
      {"norm_output", config.norm_output},
      {"embed_requires_grad", config.own_embedding}};
  for (const auto& [key, on] : flags) {
    if (on) {
      out[key] = true;
    }
  }
}

void read_feature(const JsonKeys& keys, EagleConfig& config) {
  const std::string feature = keys.text("feature", "after_final_norm");
  if (feature != "after_final_norm" && feature != "before_final_norm") {
    keys.fail("feature",
              fmt::format("is '{}'; known: after_final_norm, before_final_norm", feature));
  }
  config.feature_after_norm = feature == "after_final_norm";
}

/// The first of the sliding layers, whose rotations are those for short distances; else the first.
LayerPlan usual_layer(const TransformerInfo& target) {
  const auto sliding = std::find_if(target.plan.begin(), target.plan.end(),
                                    [](const LayerPlan& layer) { return layer.window > 0; });
  return head_layer_plan(sliding != target.plan.end() ? *sliding : target.plan.front());
}

json rope_scaling_json(const EagleConfig& config) {
  if (config.llama3_rope) {
    return {{"rope_type", "llama3"},
            {"factor", config.llama3_rope->factor},
            {"low_freq_factor", config.llama3_rope->low_freq_factor},
            {"high_freq_factor", config.llama3_rope->high_freq_factor},
            {"original_max_position_embeddings", config.llama3_rope->original_positions}};
  }
  const double factor = config.plan.rope.factor;
  return factor == 1.0 ? json() : json{{"rope_type", "linear"}, {"factor", factor}};
}

}  // namespace

std::string eagle_version_name(EagleVersion version) {
  return version == EagleVersion::kEagle ? "eagle" : "eagle3";
}

EagleConfig load_eagle_config(const std::filesystem::path& folder, EagleVersion version) {
  const std::string where = (folder / "config.json").string();
  const json parsed = parse_json_object(read_head_config(folder), where);
  const JsonKeys keys(parsed, where);
  check_kind(keys, version);
  // speculators nests what describes the layer.
  const JsonKeys layer =
      keys.has("transformer_layer_config") ? keys.object("transformer_layer_config") : keys;
  const bool third = version == EagleVersion::kEagle3;
  EagleConfig config;
  config.version = version;
  config.style = read_style(layer);
  refuse_unsupported(layer);
  config.hidden_size = layer.positive("hidden_size");
  config.vocab_size = layer.positive("vocab_size");
  config.draft_vocab_size = keys.positive("draft_vocab_size", config.vocab_size);
  if (config.draft_vocab_size > config.vocab_size) {
    keys.fail("draft_vocab_size", fmt::format("is {}, more than vocab_size ({})",
                                              config.draft_vocab_size, config.vocab_size));
  }
  config.rms_norm_eps = layer.positive_number("rms_norm_eps", 1e-6);
  read_plan(layer, config);
  config.fc_bias = keys.boolean("bias", !third);
  config.scale_embedding = keys.boolean("scale_embedding", config.style == LayerStyle::kGemma);
  read_feature(keys, config);
  read_norms(keys, config);
  if (third) {
    config.capture_layers = read_capture_layers(keys);
  }
  config.trained_for = read_head_target(keys);
  return config;
}

std::string eagle_config_json(const EagleConfig& config) {
  const bool third = config.version == EagleVersion::kEagle3;
  const bool llama = config.style == LayerStyle::kLlama;
  const LayerPlan& plan = config.plan;
  json out = {
      {"architectures", json::array({third ? "LlamaForCausalLMEagle3" : "LlamaForCausalLMEagle"})},
      {"bias", config.fc_bias},
      {"head_dim", plan.head_dim},
      {"head_type", eagle_version_name(config.version)},
      {"hidden_act", plan.activation == Activation::kSilu ? "silu" : "gelu_pytorch_tanh"},
      {"hidden_size", config.hidden_size},
      {"intermediate_size", plan.intermediate_size},
      {"model_type", llama ? "llama" : "gemma3_text"},
      {"num_attention_heads", plan.heads},
      {"num_hidden_layers", 1},
      {"num_key_value_heads", plan.kv_heads},
      {"query_pre_attn_scalar", query_scalar(plan.query_scale)},
      {"rms_norm_eps", config.rms_norm_eps},
      {"rope_scaling", rope_scaling_json(config)},
      {"rope_theta", plan.rope.theta},
      {"scale_embedding", config.scale_embedding},
      {"sliding_window", plan.window > 0 ? json(plan.window) : json()},
      {"trained_for", head_target_json(config.trained_for)},
      {"vocab_size", config.vocab_size},
  };
  if (third || config.draft_vocab_size < config.vocab_size) {
    out["draft_vocab_size"] = config.draft_vocab_size;
  }
  if (third) {
    out["eagle_config"] = {{kAuxLayers, config.capture_layers}, {"use_aux_hidden_state", true}};
  } else {
    out["feature"] = config.feature_after_norm ? "after_final_norm" : "before_final_norm";
  }
  write_norms(config, out);
  if (config.trained_for.vocab_size == 0) {
    out.erase("trained_for");
  }
  return out.dump(2) + "\n";
}

void check_eagle_config(const EagleConfig& config, const TransformerConfig& target,
                        const std::filesystem::path& folder) {
  HeadTarget shapes = config.trained_for;
  shapes.hidden_size = config.hidden_size;  // published heads do not say more
  shapes.vocab_size = config.vocab_size;
  check_head_shapes(shapes, target, folder);
  const std::vector<int64_t> layers = eagle_capture_layers(config, target);
  for (const int64_t layer : layers) {
    if (layer < 0 || layer >= target.num_layers) {
      throw WeightsError(fmt::format(
          "{}: this head is fed the residual stream after layer {}, and the target has layers 0 to "
          "{}; {} in its config.json {}.",
          folder.string(), layer, target.num_layers - 1, kAuxLayers,
          config.capture_layers.empty() ? "is missing, and the default (the inputs of layers 2, "
                                          "half and all but three) does not fit so few layers"
                                        : "belongs to another target"));
    }
  }
  if (std::set<int64_t>(layers.begin(), layers.end()).size() != layers.size()) {
    throw WeightsError(fmt::format(
        "{}: {} {}", folder.string(), kAuxLayers,
        config.capture_layers.empty()
            ? fmt::format("in its config.json is missing, and the default (the inputs of layers 2, "
                          "half and all but three) names one of the target's {} layers twice: "
                          "write the layers that the head was trained with into it.",
                          target.num_layers)
            : "names a layer twice."));
  }
}

std::vector<int64_t> eagle_capture_layers(const EagleConfig& config,
                                          const TransformerConfig& target) {
  const int64_t layers = target.num_layers;
  if (config.version == EagleVersion::kEagle) {
    return config.feature_after_norm ? std::vector<int64_t>() : std::vector<int64_t>{layers - 1};
  }
  if (!config.capture_layers.empty()) {
    return config.capture_layers;
  }
  return {1, layers / 2 - 1, layers - 4};
}

EagleConfig make_eagle_config(EagleVersion version, LayerStyle style,
                              const TransformerInfo& target) {
  const TransformerConfig& model = target.config;
  const LayerPlan& like = usual_layer(target);
  const bool llama = style == LayerStyle::kLlama;
  EagleConfig config;
  config.version = version;
  config.style = style;
  config.hidden_size = model.hidden_size;
  config.vocab_size = config.draft_vocab_size = model.vocab_size;
  config.rms_norm_eps = model.rms_norm_eps;
  config.plan.heads = like.heads;
  config.plan.kv_heads = like.kv_heads;
  config.plan.head_dim = like.head_dim;
  config.plan.intermediate_size = like.intermediate_size;
  config.plan.query_scale =
      llama ? 1.0 / std::sqrt(static_cast<double>(like.head_dim)) : like.query_scale;
  config.plan.rope.theta = like.rope.theta;
  config.plan.qk_norm = config.plan.post_norms = !llama;
  config.plan.activation = llama ? Activation::kSilu : Activation::kGeluTanh;
  config.plan.joined_inputs = version == EagleVersion::kEagle3;
  config.fc_bias = version == EagleVersion::kEagle;
  config.scale_embedding = !llama;
  if (version == EagleVersion::kEagle3) {
    const int64_t last = model.num_layers - 1;
    std::set<int64_t> layers = {std::min<int64_t>(1, last), model.num_layers / 2,
                                std::max<int64_t>(0, last - 1)};
    config.capture_layers.assign(layers.begin(), layers.end());
  }
  config.trained_for = head_target(target);
  return config;
}

}  // namespace specdec
