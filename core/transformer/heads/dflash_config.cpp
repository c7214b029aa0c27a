#include "core/transformer/heads/dflash_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "core/transformer/layer_types.h"
#include "core/transformer/rope_config.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kTargetLayers = "target_layer_ids";
constexpr int64_t kMostRows = 1024;

/// The object that holds a key of the method: dflash_config where that has it, else the top.
JsonKeys method_keys(const JsonKeys& keys, const char* key) {
  const bool nested = keys.has("dflash_config") && keys.object("dflash_config").has(key);
  return nested ? keys.object("dflash_config") : keys;
}

void check_dflash_kind(const JsonKeys& keys) {
  const std::string found = head_kind(keys);
  if (found != "dflash") {
    keys.fail("architectures",
              found.empty() ? "does not name a DFlash head (DFlashDraftModel)"
                            : fmt::format("says that this is a head of type {0}, not dflash; use "
                                          "drafter type {0}",
                                          found));
  }
}

/// What would change the result and is not computed here.
void refuse_other_methods(const JsonKeys& keys) {
  const auto refuse = [](const JsonKeys& object, const char* key, const char* problem) {
    if (object.has(key)) {
      object.fail(key, problem);
    }
  };
  if (!method_keys(keys, "is_neox_style").boolean("is_neox_style", true)) {
    keys.fail("is_neox_style", "is false; heads are rotated in halves");
  }
  for (const char* key : {"attention_sink_bias", "mask_embedding", "use_swa", "attention_bias"}) {
    const JsonKeys object = method_keys(keys, key);
    if (object.boolean(key, false)) {
      object.fail(key, "is true, which is not supported");
    }
  }
  refuse(method_keys(keys, "causal"), "causal", "is not supported; z-lab's key is is_causal");
  refuse(method_keys(keys, "logit_scale"), "logit_scale",
         "is not supported; z-lab's key is output_multiplier");
  refuse(keys, "draft_vocab_size", "is not supported: the target's own head gives the logits");
}

/// A window is only what transformers reads as one: `use_sliding_window` false drops it.
std::vector<bool> read_sliding(const JsonKeys& keys, int64_t layers) {
  const bool used = keys.boolean("use_sliding_window", false);
  if (!keys.has("layer_types")) {
    const int64_t full = used ? keys.integer("max_window_layers", 28) : layers;
    std::vector<bool> sliding;
    for (int64_t layer = 0; layer < layers; ++layer) {
      sliding.push_back(layer >= full);
    }
    return sliding;
  }
  const std::vector<bool> sliding = read_layer_types(keys, layers);
  if (!used && std::find(sliding.begin(), sliding.end(), true) != sliding.end()) {
    keys.fail("use_sliding_window",
              "is not true, with which transformers drops the window of the sliding layers in "
              "layer_types; say true, or make them full_attention");
  }
  return sliding;
}

Activation read_block_activation(const JsonKeys& keys) {
  const std::string name = keys.text("hidden_act", "silu");
  if (name != "silu" && name != "gelu_pytorch_tanh") {
    keys.fail("hidden_act", fmt::format("is '{}'; supported: silu, gelu_pytorch_tanh", name));
  }
  return name == "silu" ? Activation::kSilu : Activation::kGeluTanh;
}

LayerPlan read_block_layer(const JsonKeys& keys, const DFlashConfig& config) {
  LayerPlan plan;
  read_head_layer_sizes(keys, config.hidden_size, plan);
  plan.query_scale = 1.0 / std::sqrt(static_cast<double>(plan.head_dim));
  plan.qk_norm = true;
  plan.activation = read_block_activation(keys);
  const bool nested =
      keys.has("rope_parameters") && keys.object("rope_parameters").has("rope_theta");
  const bool scaled = keys.has("rope_scaling") && keys.object("rope_scaling").has("rope_theta");
  if (!nested && !scaled && !keys.has("rope_theta")) {
    keys.fail("rope_theta", "is missing; engines differ in what it is then (1e4, 1e6)");
  }
  plan.rope = read_llama_rope(keys, plan.head_dim, keys.positive("max_position_embeddings", 32768));
  return plan;
}

void read_layers(const JsonKeys& keys, DFlashConfig& config) {
  const int64_t layers = read_layer_count(keys);
  const LayerPlan plan = read_block_layer(keys, config);
  const std::vector<bool> sliding = read_sliding(keys, layers);
  const JsonKeys causality = method_keys(keys, "is_causal");
  for (const bool slides : sliding) {
    config.plan.push_back(plan);
    config.plan.back().window = slides ? keys.positive("sliding_window") : 0;
    config.causal.push_back(causality.boolean("is_causal", slides));
  }
}

std::vector<int64_t> read_target_layers(const JsonKeys& keys) {
  std::vector<int64_t> layers;
  const JsonKeys object = method_keys(keys, kTargetLayers);
  if (!object.has(kTargetLayers)) {
    return layers;
  }
  const json& ids = object.at(kTargetLayers);
  for (const json& id : ids.is_array() ? ids : json::array()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > 1024) {
      object.fail(kTargetLayers, fmt::format("holds {}, which is no layer", describe_json(id)));
    }
    layers.push_back(id.get<int64_t>());
  }
  if (layers.empty()) {
    object.fail(kTargetLayers, "should be a list of layers");
  }
  return layers;
}

void read_block(const JsonKeys& keys, DFlashConfig& config) {
  const auto number = [&keys](const char* key) {
    return method_keys(keys, key).positive_number(key, 1.0);
  };
  const JsonKeys block = method_keys(keys, "block_size");
  config.block_size = block.positive("block_size", 16);
  if (config.block_size < 2 || config.block_size > kMostRows) {
    block.fail("block_size", fmt::format("is {}; 2 to {}", config.block_size, kMostRows));
  }
  const JsonKeys mask = method_keys(keys, "mask_token_id");
  const int64_t token = mask.integer("mask_token_id");
  if (token < 0 || token >= config.vocab_size) {
    mask.fail("mask_token_id",
              fmt::format("is {}, outside the vocabulary of {}", token, config.vocab_size));
  }
  config.mask_token = static_cast<Token>(token);
  config.embedding_scale = number("input_embedding_scale");
  config.output_multiplier = number("output_multiplier");
  config.soft_cap =
      method_keys(keys, "final_logit_softcapping").soft_cap("final_logit_softcapping", 0.0);
  config.capture_layers = read_target_layers(keys);
}

json rope_json(const RopeConfig& rope) {
  json out = {{"rope_theta", rope.theta}, {"rope_type", "default"}};
  if (rope.factor != 1.0) {
    out["rope_type"] = "linear";
    out["factor"] = rope.factor;
  }
  return out;
}

}  // namespace

DFlashConfig load_dflash_config(const std::filesystem::path& folder) {
  const std::string where = (folder / "config.json").string();
  const json parsed = parse_json_object(read_head_config(folder), where);
  const JsonKeys keys(parsed, where);
  check_dflash_kind(keys);
  refuse_other_methods(keys);
  DFlashConfig config;
  config.hidden_size = keys.positive("hidden_size");
  config.vocab_size = keys.positive("vocab_size");
  config.rms_norm_eps = keys.positive_number("rms_norm_eps", 1e-6);
  read_layers(keys, config);
  read_block(keys, config);
  config.trained_for = read_head_target(keys);
  if (keys.has("num_target_layers")) {
    config.trained_for.num_layers = keys.positive("num_target_layers");
  }
  return config;
}

std::string dflash_config_json(const DFlashConfig& config) {
  const LayerPlan& plan = config.plan.front();
  json out = {{"architectures", {"DFlashDraftModel"}},
              {"model_type", "qwen3"},
              {"block_size", config.block_size},
              {"dflash_config", {{"mask_token_id", config.mask_token}}},
              {"head_dim", plan.head_dim},
              {"hidden_act", plan.activation == Activation::kSilu ? "silu" : "gelu_pytorch_tanh"},
              {"hidden_size", config.hidden_size},
              {"input_embedding_scale", config.embedding_scale},
              {"intermediate_size", plan.intermediate_size},
              {"num_attention_heads", plan.heads},
              {"num_hidden_layers", config.plan.size()},
              {"num_key_value_heads", plan.kv_heads},
              {"output_multiplier", config.output_multiplier},
              {"rms_norm_eps", config.rms_norm_eps},
              {"rope_parameters", rope_json(plan.rope)},
              {"use_sliding_window", true},
              {"vocab_size", config.vocab_size}};
  for (const LayerPlan& layer : config.plan) {
    out["layer_types"].push_back(layer.window > 0 ? "sliding_attention" : "full_attention");
    if (layer.window > 0) {
      out["sliding_window"] = layer.window;
    }
  }
  for (size_t layer = 0; layer < config.plan.size(); ++layer) {
    if (config.causal[layer] != (config.plan[layer].window > 0)) {
      out["is_causal"] = bool{config.causal[layer]};
    }
  }
  if (config.soft_cap > 0.0) {
    out["final_logit_softcapping"] = config.soft_cap;
  }
  if (!config.capture_layers.empty()) {
    out["dflash_config"][kTargetLayers] = config.capture_layers;
  }
  if (config.trained_for.vocab_size > 0) {
    out["trained_for"] = head_target_json(config.trained_for);
  }
  return out.dump(2) + "\n";
}

std::vector<int64_t> dflash_capture_layers(const DFlashConfig& config,
                                           const TransformerConfig& target) {
  if (!config.capture_layers.empty()) {
    return config.capture_layers;
  }
  const int64_t taps = std::ssize(config.plan);
  if (taps == 1) {
    return {target.num_layers / 2};
  }
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < taps; ++i) {  // rounded as Python rounds, halves to even
    const auto span = static_cast<double>(target.num_layers - 4);
    layers.push_back(static_cast<int64_t>(
        std::nearbyint(1.0 + static_cast<double>(i) * span / static_cast<double>(taps - 1))));
  }
  return layers;
}

void check_dflash_config(const DFlashConfig& config, const TransformerConfig& target,
                         const std::filesystem::path& folder) {
  HeadTarget shapes = config.trained_for;
  shapes.hidden_size = config.hidden_size;  // published heads do not say more
  shapes.vocab_size = config.vocab_size;
  check_head_shapes(shapes, target, folder);
  const std::vector<int64_t> layers = dflash_capture_layers(config, target);
  const char* from =
      config.capture_layers.empty() ? " (its default, since the key is missing)" : "";
  for (const int64_t layer : layers) {
    if (layer < 0 || layer + 1 >= target.num_layers) {
      throw WeightsError(fmt::format(
          "{}: {}{} in its config.json names layer {}; a head is fed the outputs of a target's "
          "layers but the last, which here are layers 0 to {}. Use the head that was trained for "
          "this target.",
          folder.string(), kTargetLayers, from, layer, target.num_layers - 2));
    }
  }
  if (std::set<int64_t>(layers.begin(), layers.end()).size() != layers.size()) {
    throw WeightsError(
        fmt::format("{}: {}{} in its config.json names a layer twice; write the "
                    "layers that the head was trained with into it.",
                    folder.string(), kTargetLayers, from));
  }
}

DFlashConfig make_dflash_config(const TransformerInfo& target, int64_t layers, int64_t block_size) {
  const TransformerConfig& model = target.config;
  const LayerPlan& like = target.plan.front();
  DFlashConfig config;
  config.hidden_size = model.hidden_size;
  config.vocab_size = model.vocab_size;
  config.rms_norm_eps = model.rms_norm_eps;
  LayerPlan plan;
  plan.heads = like.heads;
  plan.kv_heads = like.kv_heads;
  plan.head_dim = like.head_dim;
  plan.intermediate_size = like.intermediate_size;
  plan.query_scale = 1.0 / std::sqrt(static_cast<double>(like.head_dim));
  plan.rope.theta = 1e6;
  plan.qk_norm = true;
  plan.activation = Activation::kSilu;
  config.plan.assign(static_cast<size_t>(layers), plan);
  config.causal.assign(static_cast<size_t>(layers), false);
  config.block_size = block_size;
  const int64_t last = std::max<int64_t>(0, model.num_layers - 2);
  const std::set<int64_t> taps = {0, last / 2, last};
  config.capture_layers.assign(taps.begin(), taps.end());
  config.trained_for = head_target(target);
  return config;
}

}  // namespace specdec
