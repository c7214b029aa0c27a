#include "core/families/gemma/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/families/token_ids.h"
#include "core/families/unsupported_keys.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"
#include "core/transformer/heads/head_files.h"
#include "core/transformer/layer_types.h"
#include "core/transformer/rope_config.h"

namespace specdec {
namespace {

using nlohmann::json;

GemmaFamily read_family(const JsonKeys& keys) {
  const std::string type = keys.text("model_type", "");
  if (type == "gemma") {
    return GemmaFamily::kGemma1;
  }
  if (type == "gemma2") {
    return GemmaFamily::kGemma2;
  }
  if (type == "gemma3_text") {
    return GemmaFamily::kGemma3;
  }
  keys.fail("model_type", fmt::format("is '{}'; supported: gemma, gemma2, gemma3_text, and gemma3 "
                                      "(its text part)",
                                      type));
}

/// A hub text_config may leave out what transformers has as defaults of each class.
struct FamilyDefaults {
  int64_t vocab_size, hidden_size, intermediate_size, layers, heads, kv_heads, window, positions;
};

FamilyDefaults wrapper_defaults() { return {262208, 2304, 9216, 26, 8, 4, 4096, 131072}; }

void read_sizes(const JsonKeys& keys, bool wrapped, GemmaConfig& config) {
  const FamilyDefaults defaults = wrapper_defaults();
  const auto optional = [wrapped](int64_t value) {
    return wrapped ? std::optional<int64_t>(value) : std::nullopt;
  };
  config.vocab_size = keys.positive("vocab_size", optional(defaults.vocab_size));
  config.hidden_size = keys.positive("hidden_size", optional(defaults.hidden_size));
  config.intermediate_size =
      keys.positive("intermediate_size", optional(defaults.intermediate_size));
  config.num_layers = read_layer_count(keys, optional(defaults.layers));
  config.num_heads = keys.positive("num_attention_heads", optional(defaults.heads));
  config.num_kv_heads = keys.positive("num_key_value_heads", optional(defaults.kv_heads));
  config.head_dim = keys.positive("head_dim", 256);
  config.max_position_embeddings = keys.positive(
      "max_position_embeddings", config.family == GemmaFamily::kGemma3 ? defaults.positions : 8192);
  config.rms_norm_eps = keys.positive_number("rms_norm_eps", 1e-6);
  config.tie_word_embeddings = keys.boolean("tie_word_embeddings", true);
  if (config.num_heads % config.num_kv_heads != 0) {
    keys.fail("num_key_value_heads", fmt::format("is {}, which does not divide the {} attention "
                                                 "heads",
                                                 config.num_kv_heads, config.num_heads));
  }
  if (config.head_dim % 2 != 0) {
    keys.fail("head_dim",
              fmt::format("is {}; rotary embeddings need an even number", config.head_dim));
  }
}

/// Under the names of transformers' functions; "gelu" is the exact form.
bool is_gelu_tanh(const std::string& activation) {
  return activation == "gelu_pytorch_tanh" || activation == "gelu_new" ||
         activation == "gelu_fast" || activation == "gelu_python_tanh";
}

void refuse_unsupported(const JsonKeys& keys, GemmaFamily family) {
  refuse_unsupported_keys(keys);
  if (keys.boolean("attention_bias", false)) {
    keys.fail("attention_bias", "is true; no Gemma release has biases and none are loaded here");
  }
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    const std::string activation = keys.text(key, "gelu_pytorch_tanh");
    // The first configs say hidden_act "gelu" and mean the tanh form; Gemma 2 and 3 do not read it.
    const bool means_tanh = activation == "gelu" &&
                            (key == std::string("hidden_act") || family == GemmaFamily::kGemma1);
    if (!is_gelu_tanh(activation) && !means_tanh) {
      keys.fail(key, fmt::format("is '{}'; Gemma uses gelu_pytorch_tanh", activation));
    }
  }
}

void read_attention(const JsonKeys& keys, GemmaConfig& config) {
  double scalar = static_cast<double>(config.head_dim);
  if (config.family != GemmaFamily::kGemma1) {
    scalar = keys.positive_number("query_pre_attn_scalar", 256.0);
  }
  config.query_scale = 1.0 / std::sqrt(scalar);
  if (config.family == GemmaFamily::kGemma2) {
    config.attention_soft_cap = keys.soft_cap("attn_logit_softcapping", 50.0);
    config.final_soft_cap = keys.soft_cap("final_logit_softcapping", 30.0);
  } else if (config.family == GemmaFamily::kGemma3) {
    config.final_soft_cap = keys.soft_cap("final_logit_softcapping", 0.0);
  }
  config.bidirectional = keys.boolean("use_bidirectional_attention", false);
  if (config.bidirectional && config.family != GemmaFamily::kGemma3) {
    keys.fail("use_bidirectional_attention", "is supported for gemma3_text only");
  }
}

std::vector<bool> default_pattern(const JsonKeys& keys, const GemmaConfig& config) {
  std::vector<bool> sliding(static_cast<size_t>(config.num_layers), false);
  int64_t pattern = 2;  // Gemma 2: every second layer is full, sliding first
  if (config.family == GemmaFamily::kGemma3) {
    // transformers writes "_sliding_window_pattern" beside layer_types and never reads it.
    pattern = keys.positive("sliding_window_pattern", 6);
  }
  for (size_t layer = 0; layer < sliding.size(); ++layer) {
    sliding[layer] = (static_cast<int64_t>(layer) + 1) % pattern != 0;
  }
  return sliding;
}

void read_windows(const JsonKeys& keys, GemmaConfig& config) {
  if (config.family == GemmaFamily::kGemma1) {
    config.sliding_layers.assign(static_cast<size_t>(config.num_layers), false);
    return;
  }
  config.sliding_layers = keys.has("layer_types") ? read_layer_types(keys, config.num_layers)
                                                  : default_pattern(keys, config);
  const bool any = std::find(config.sliding_layers.begin(), config.sliding_layers.end(), true) !=
                   config.sliding_layers.end();
  if (any || keys.has("sliding_window")) {
    const std::optional<int64_t> missing = wrapper_defaults().window;
    config.sliding_window =
        keys.positive("sliding_window", keys.contains("sliding_window") ? std::nullopt : missing);
  }
}

/// One entry of rope_parameters, or old style's rope_scaling.
RopeConfig read_rope(const JsonKeys& keys, double theta) {
  refuse_partial_rotation(keys);
  RopeConfig rope;
  rope.theta = keys.positive_number("rope_theta", theta);
  const std::string type = rope_type(keys);
  if (type == "linear") {
    rope.factor = keys.positive_number("factor");
  } else if (type != "default") {
    keys.fail("rope_type", fmt::format("is '{}'; supported: default, linear", type));
  }
  return rope;
}

/// Gemma 1 and 2: one rotation; a rope_scaling counts more than rope_parameters.
RopeConfig read_one_rope(const JsonKeys& keys) {
  const double theta = keys.positive_number("rope_theta", 1e4);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (keys.has(key) && !keys.object(key).names().empty()) {
      const JsonKeys rope = keys.object(key);
      refuse_layer_types(rope);
      return read_rope(rope, theta);
    }
  }
  return {.theta = theta};
}

/// Gemma 3: one of each kind of layer; an old rope_scaling is of the full layers.
void read_two_ropes(const JsonKeys& keys, GemmaConfig& config) {
  config.global_rope.theta = keys.positive_number("rope_theta", 1e6);
  config.local_rope.theta = keys.positive_number("rope_local_base_freq", 1e4);
  if (keys.has("rope_parameters")) {
    const JsonKeys ropes = keys.object("rope_parameters");
    for (const std::string& name : ropes.names()) {
      if (name != "full_attention" && name != "sliding_attention") {
        ropes.fail(name, "is unknown here; known: full_attention, sliding_attention");
      }
    }
    if (ropes.has("full_attention")) {
      config.global_rope = read_rope(ropes.object("full_attention"), config.global_rope.theta);
    }
    if (ropes.has("sliding_attention")) {
      config.local_rope = read_rope(ropes.object("sliding_attention"), config.local_rope.theta);
    }
  }
  if (keys.has("rope_scaling") && !keys.object("rope_scaling").names().empty()) {
    config.global_rope = read_rope(keys.object("rope_scaling"), config.global_rope.theta);
  }
}

void read_ropes(const JsonKeys& keys, GemmaConfig& config) {
  if (config.family == GemmaFamily::kGemma3) {
    read_two_ropes(keys, config);
  } else {
    config.global_rope = read_one_rope(keys);
    config.local_rope = config.global_rope;
  }
}

GemmaConfig parse_text_config(const JsonKeys& keys, bool wrapped) {
  GemmaConfig config;
  config.family = wrapped && !keys.has("model_type") ? GemmaFamily::kGemma3 : read_family(keys);
  read_sizes(keys, wrapped, config);
  refuse_unsupported(keys, config.family);
  read_attention(keys, config);
  read_windows(keys, config);
  read_ropes(keys, config);
  config.dtype = keys.text("dtype", keys.text("torch_dtype", ""));
  config.end_ids =
      keys.has("eos_token_id") ? read_end_ids(keys, config.vocab_size) : std::vector<Token>{1};
  config.bos_id = read_bos_id(keys, config.vocab_size, 2);
  if (config.bidirectional) {
    config.sliding_window = config.sliding_window / 2 + 1;
  }
  return config;
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

std::string gemma_family_name(GemmaFamily family) {
  switch (family) {
    case GemmaFamily::kGemma1:
      return "gemma";
    case GemmaFamily::kGemma2:
      return "gemma2";
    case GemmaFamily::kGemma3:
      break;
  }
  return "gemma3_text";
}

const std::vector<std::string>& gemma_model_types() {
  static const std::vector<std::string> types = {"gemma", "gemma2", "gemma3_text", "gemma3"};
  return types;
}

GemmaConfig parse_gemma_config(const std::string& text, const std::string& where,
                               const KeyNames& names) {
  const json parsed = parse_json_object(text, where);
  const JsonKeys keys(parsed, where, names);
  if (keys.text("model_type", "") != "gemma3") {
    return parse_text_config(keys, false);
  }
  refuse_unsupported_keys(keys);
  GemmaConfig config = parse_text_config(keys.object("text_config"), true);
  if (keys.has("eos_token_id")) {
    config.end_ids = read_end_ids(keys, config.vocab_size);
  }
  // The wrapper's model has the head: it does not look into text_config for these.
  config.tie_word_embeddings = keys.boolean("tie_word_embeddings", true);
  config.final_soft_cap = 0.0;
  if (config.dtype.empty()) {
    config.dtype = keys.text("dtype", keys.text("torch_dtype", ""));
  }
  return config;
}

GemmaConfig load_gemma_config(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) {
    throw WeightsError(
        fmt::format("{}: no such folder. Name a Hugging Face checkpoint folder.", folder.string()));
  }
  refuse_head(folder);
  const auto path = folder / "config.json";
  GemmaConfig config = parse_gemma_config(read_file(path), path.string());
  if (auto ends = read_generation_ends(folder, config.vocab_size)) {
    config.end_ids = *std::move(ends);
  }
  return config;
}

namespace {

/// The keys of transformers 4 beside those of 5, so that either reads the same rotations.
void write_old_rope(const GemmaConfig& config, json& out) {
  out["rope_theta"] = config.global_rope.theta;
  if (config.family == GemmaFamily::kGemma3) {
    out["rope_local_base_freq"] = config.local_rope.theta;
    if (config.global_rope.factor != 1.0) {
      out["rope_scaling"] = {{"rope_type", "linear"}, {"factor", config.global_rope.factor}};
    }
  }
}

}  // namespace

std::string gemma_config_json(const GemmaConfig& config) {
  json out = {
      {"architectures",
       json::array({config.family == GemmaFamily::kGemma1   ? "GemmaForCausalLM"
                    : config.family == GemmaFamily::kGemma2 ? "Gemma2ForCausalLM"
                                                            : "Gemma3ForCausalLM"})},
      {"attention_bias", false},
      {"bos_token_id", config.bos_id < 0 ? json() : json(config.bos_id)},
      {"dtype", config.dtype},
      {"eos_token_id", config.end_ids},
      {"head_dim", config.head_dim},
      {"hidden_activation", "gelu_pytorch_tanh"},
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.intermediate_size},
      {"max_position_embeddings", config.max_position_embeddings},
      {"model_type", gemma_family_name(config.family)},
      {"num_attention_heads", config.num_heads},
      {"num_hidden_layers", config.num_layers},
      {"num_key_value_heads", config.num_kv_heads},
      {"pad_token_id", 0},
      {"rms_norm_eps", config.rms_norm_eps},
      {"tie_word_embeddings", config.tie_word_embeddings},
      {"vocab_size", config.vocab_size},
  };
  write_old_rope(config, out);
  if (config.family == GemmaFamily::kGemma1) {
    out["rope_parameters"] = rope_json(config.global_rope);
    return out.dump(2) + "\n";
  }
  const double scalar = query_scalar(config.query_scale);
  out["query_pre_attn_scalar"] = scalar;
  if (scalar == std::floor(scalar)) {  // transformers 5 takes no 64.0
    out["query_pre_attn_scalar"] = static_cast<int64_t>(scalar);
  }
  out["sliding_window"] =
      config.bidirectional ? (config.sliding_window - 1) * 2 : config.sliding_window;
  out["layer_types"] = json::array();
  for (const bool sliding : config.sliding_layers) {
    out["layer_types"].push_back(sliding ? "sliding_attention" : "full_attention");
  }
  const auto cap = [](double value) { return value == 0.0 ? json() : json(value); };
  out["attn_logit_softcapping"] = cap(config.attention_soft_cap);
  out["final_logit_softcapping"] = cap(config.final_soft_cap);
  if (config.family == GemmaFamily::kGemma3) {
    out["use_bidirectional_attention"] = config.bidirectional;
    out["rope_parameters"] = {{"full_attention", rope_json(config.global_rope)},
                              {"sliding_attention", rope_json(config.local_rope)}};
  } else {
    out["rope_parameters"] = rope_json(config.global_rope);
  }
  return out.dump(2) + "\n";
}

}  // namespace specdec
