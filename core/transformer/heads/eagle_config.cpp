#include "core/transformer/heads/eagle_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "core/transformer/heads/eagle_layer_config.h"
#include "core/transformer/heads/head_layer.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kAuxLayers = "eagle_aux_hidden_state_layer_ids";
constexpr const char* kDeepSpecLayers = "target_layer_ids";
constexpr int64_t kMostParallelDrafts = 1024;

void check_kind(const JsonKeys& keys, EagleVersion version) {
  const std::string wanted = eagle_version_name(version);
  const std::string found = head_kind(keys);
  if (!found.empty() && found != wanted) {
    keys.fail("head_type", fmt::format("says that this is a head of type {0}, not {1}; use drafter "
                                       "type {0}",
                                       found, wanted));
  }
}

std::vector<int64_t> read_ids(const JsonKeys& keys, const char* key, int64_t shift) {
  const json& ids = keys.at(key);
  std::vector<int64_t> layers;
  for (const json& id : ids.is_array() ? ids : json::array()) {
    if (!id.is_number_integer() || id.get<int64_t>() - shift < 0 || id.get<int64_t>() > 1024) {
      keys.fail(key, fmt::format("holds {}, which is no layer to take a residual stream after",
                                 describe_json(id)));
    }
    layers.push_back(id.get<int64_t>() - shift);
  }
  if (layers.empty()) {
    keys.fail(key, "should be a list of layers");
  }
  return layers;
}

/// Reads the layers that are captured. At the top of the config, id j is the input of layer j, as
/// vLLM and speculators count; in eagle_config it is the output of layer j, as SGLang and SpecForge
/// do, and so it is in DeepSpec's target_layer_ids.
std::vector<int64_t> read_capture_layers(const JsonKeys& keys) {
  if (keys.has("eagle_config") && keys.object("eagle_config").has(kAuxLayers)) {
    return read_ids(keys.object("eagle_config"), kAuxLayers, 0);
  }
  if (keys.has(kDeepSpecLayers)) {
    return read_ids(keys, kDeepSpecLayers, 0);
  }
  return keys.has(kAuxLayers) ? read_ids(keys, kAuxLayers, 1) : std::vector<int64_t>();
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
    if (*flag && !captures_streams(config.version)) {
      keys.fail(key, "is true, which only heads of EAGLE-3 know; use drafter type eagle3");
    }
  }
  if (config.fc_norm && config.norm_before_fc) {
    keys.fail("fc_norm", "and norm_before_fc are both true; a head has one or the other");
  }
}

/// Writes the flags of norms that are on alone, so that a head without them has the config that it
/// always had.
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

/// Tokens of a draft that speculators trained for: those of its first proposal method.
std::optional<int64_t> proposed_tokens(const JsonKeys& keys) {
  if (!keys.has("speculators_config")) {
    return std::nullopt;
  }
  const JsonKeys speculators = keys.object("speculators_config");
  const json methods =
      speculators.has("proposal_methods") ? speculators.at("proposal_methods") : json::array();
  if (!methods.is_array() || methods.empty() || !methods.front().is_object() ||
      !methods.front().contains("speculative_tokens")) {
    return std::nullopt;
  }
  const json& tokens = methods.front()["speculative_tokens"];
  if (!tokens.is_number_integer() || tokens < 1 || tokens > kMostParallelDrafts) {
    speculators.fail("proposal_methods", fmt::format("has speculative_tokens {}; 1 to {}",
                                                     describe_json(tokens), kMostParallelDrafts));
  }
  return tokens.get<int64_t>();
}

void read_parallel(const JsonKeys& keys, EagleConfig& config) {
  const int64_t token = keys.integer("mask_token_id");
  if (token < 0 || token >= config.vocab_size) {
    keys.fail("mask_token_id",
              fmt::format("is {}, outside the vocabulary of {}", token, config.vocab_size));
  }
  config.mask_token = static_cast<Token>(token);
  config.own_embedding = true;
  config.drafts = proposed_tokens(keys).value_or(config.drafts);
}

void write_parallel(const EagleConfig& config, json& out) {
  out["mask_token_id"] = config.mask_token;
  out["speculators_config"] = {
      {"proposal_methods", json::array({{{"speculative_tokens", config.drafts}}})}};
}

/// The first of the sliding layers, whose rotations are those for short distances; else the first.
LayerPlan usual_layer(const TransformerInfo& target) {
  const auto sliding = std::find_if(target.plan.begin(), target.plan.end(),
                                    [](const LayerPlan& layer) { return layer.window > 0; });
  return head_layer_plan(sliding != target.plan.end() ? *sliding : target.plan.front());
}

}  // namespace

bool captures_streams(EagleVersion version) { return version != EagleVersion::kEagle; }

std::string eagle_version_name(EagleVersion version) {
  switch (version) {
    case EagleVersion::kEagle:
      return "eagle";
    case EagleVersion::kEagle3:
      return "eagle3";
    case EagleVersion::kPEagle:
      return "peagle";
  }
  return "";
}

std::optional<EagleVersion> find_eagle_version(const std::string& name) {
  for (const EagleVersion version :
       {EagleVersion::kEagle, EagleVersion::kEagle3, EagleVersion::kPEagle}) {
    if (name == eagle_version_name(version)) {
      return version;
    }
  }
  return std::nullopt;
}

EagleConfig load_eagle_config(const std::filesystem::path& folder, EagleVersion version) {
  const std::string where = (folder / "config.json").string();
  const json parsed = parse_json_object(read_head_config(folder), where);
  const JsonKeys keys(parsed, where);
  check_kind(keys, version);
  // speculators nests what describes the layer.
  const JsonKeys layer =
      keys.has("transformer_layer_config") ? keys.object("transformer_layer_config") : keys;
  const bool third = captures_streams(version);
  EagleConfig config;
  config.version = version;
  // A whole model's folder has as many layers, too, but does not say that it is a head.
  const bool says_its_kind = keys.has("speculators_model_type") || keys.has("head_type");
  const bool may_be_several = version == EagleVersion::kPEagle || (third && says_its_kind);
  read_eagle_layer(layer, may_be_several, config);
  config.vocab_size = layer.positive("vocab_size");
  config.draft_vocab_size = keys.positive("draft_vocab_size", config.vocab_size);
  if (config.draft_vocab_size > config.vocab_size) {
    keys.fail("draft_vocab_size", fmt::format("is {}, more than vocab_size ({})",
                                              config.draft_vocab_size, config.vocab_size));
  }
  config.fc_bias = keys.boolean("bias", !third);
  config.scale_embedding = keys.boolean("scale_embedding", is_gemma(config.style));
  read_feature(keys, config);
  read_norms(keys, config);
  if (third) {
    config.capture_layers = read_capture_layers(keys);
  }
  if (version == EagleVersion::kPEagle) {
    read_parallel(keys, config);
  }
  config.trained_for = read_head_target(keys);
  if (keys.has("num_target_layers")) {  // DeepSpec
    config.trained_for.num_layers = keys.positive("num_target_layers");
  }
  return config;
}

std::string eagle_config_json(const EagleConfig& config) {
  const bool third = captures_streams(config.version);
  json out = {
      {"architectures", json::array({third ? "LlamaForCausalLMEagle3" : "LlamaForCausalLMEagle"})},
      {"bias", config.fc_bias},
      {"head_type", eagle_version_name(config.version)},
      {"scale_embedding", config.scale_embedding},
      {"trained_for", head_target_json(config.trained_for)},
      {"vocab_size", config.vocab_size},
  };
  write_eagle_layer(config, out);
  if (third || config.draft_vocab_size < config.vocab_size) {
    out["draft_vocab_size"] = config.draft_vocab_size;
  }
  if (third) {
    out["eagle_config"] = {{kAuxLayers, config.capture_layers}, {"use_aux_hidden_state", true}};
  } else {
    out["feature"] = config.feature_after_norm ? "after_final_norm" : "before_final_norm";
  }
  write_norms(config, out);
  if (config.version == EagleVersion::kPEagle) {
    write_parallel(config, out);
  }
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
  const bool gemma = is_gemma(style);
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
  config.plan.query_scale = gemma ? like.query_scale : std::pow(like.head_dim, -0.5);
  if (style == LayerStyle::kGemma4) {
    config.plan.query_scale = 1.0;
  }
  config.plan.rope.theta = like.rope.theta;
  apply_style(config);
  config.plan.activation = gemma ? Activation::kGeluTanh : Activation::kSilu;
  config.fc_bias = version == EagleVersion::kEagle;
  config.scale_embedding = gemma;
  if (captures_streams(version)) {
    const int64_t last = model.num_layers - 1;
    std::set<int64_t> layers = {std::min<int64_t>(1, last), model.num_layers / 2,
                                std::max<int64_t>(0, last - 1)};
    config.capture_layers.assign(layers.begin(), layers.end());
  }
  config.own_embedding = version == EagleVersion::kPEagle;
  config.trained_for = head_target(target);
  return config;
}

}  // namespace specdec
