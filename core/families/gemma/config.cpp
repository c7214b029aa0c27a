#include "core/families/gemma/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/families/gemma/merged_rope.h"
#include "core/families/token_ids.h"
#include "core/families/unsupported_keys.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"
#include "core/formats/torch_dtype.h"
#include "core/transformer/heads/head_files.h"
#include "core/transformer/layer_types.h"
#include "core/transformer/rope_config.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kGemma1 = "gemma";
constexpr const char* kGemma2 = "gemma2";
constexpr const char* kVault = "vaultgemma";
constexpr const char* kGemma3 = "gemma3_text";
constexpr const char* kWrapper = "gemma3";

/// A hub text_config may leave out what transformers has as defaults of each class.
struct WrapperDefaults {
  int64_t vocab_size = 262208, hidden_size = 2304, intermediate_size = 9216, layers = 26;
  int64_t heads = 8, kv_heads = 4, window = 4096, positions = 131072;
};

/// Under the names of transformers' functions; "gelu" is the exact form.
bool is_gelu_tanh(const std::string& activation) {
  return activation == "gelu_pytorch_tanh" || activation == "gelu_new" ||
         activation == "gelu_fast" || activation == "gelu_python_tanh";
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

/// Reads the keys of a text model.
class GemmaReader {
 public:
  GemmaReader(const JsonKeys& keys, bool wrapped) : keys_(keys), wrapped_(wrapped) {}

  ModelDescription read() {
    read_family();
    read_sizes();
    refuse_unsupported();
    read_attention();
    read_layers();
    read_tokens();
    model_.norm_offset = kGemmaNormOffset;
    model_.scaled_embedding = true;
    return std::move(model_);
  }

 private:
  bool is(const char* family) const { return config().family == family; }
  TransformerConfig& config() { return model_.config; }
  const TransformerConfig& config() const { return model_.config; }
  std::optional<int64_t> optional(int64_t value) const {
    return wrapped_ ? std::optional<int64_t>(value) : std::nullopt;
  }

  void read_family() {
    config().family = wrapped_ && !keys_.has("model_type") ? kGemma3 : keys_.text("model_type", "");
    if (!is(kGemma1) && !is(kGemma2) && !is(kVault) && !is(kGemma3)) {
      keys_.fail("model_type", fmt::format("is '{}'; supported: gemma, gemma2, vaultgemma, "
                                           "gemma3_text, and gemma3 (its text part)",
                                           config().family));
    }
  }

  void read_sizes() {
    config().vocab_size = keys_.positive("vocab_size", optional(defaults_.vocab_size));
    config().hidden_size = keys_.positive("hidden_size", optional(defaults_.hidden_size));
    layer_.intermediate_size =
        keys_.positive("intermediate_size", optional(defaults_.intermediate_size));
    config().num_layers = read_layer_count(keys_, optional(defaults_.layers));
    layer_.heads = keys_.positive("num_attention_heads", optional(defaults_.heads));
    layer_.kv_heads = keys_.positive("num_key_value_heads", optional(defaults_.kv_heads));
    layer_.head_dim = keys_.positive("head_dim", 256);
    config().max_position_embeddings =
        keys_.positive("max_position_embeddings", is(kGemma3) ? defaults_.positions : 8192);
    config().rms_norm_eps = keys_.rms_norm_eps();
    config().tie_word_embeddings = keys_.boolean("tie_word_embeddings", true);
    if (layer_.heads % layer_.kv_heads != 0) {
      keys_.fail("num_key_value_heads",
                 fmt::format("is {}, which does not divide the {} attention heads", layer_.kv_heads,
                             layer_.heads));
    }
    if (layer_.head_dim % 2 != 0) {
      keys_.fail("head_dim",
                 fmt::format("is {}; rotary embeddings need an even number", layer_.head_dim));
    }
  }

  void refuse_unsupported() const {
    refuse_unsupported_keys(keys_);
    for (const char* key : {"hidden_act", "hidden_activation"}) {
      const std::string activation = keys_.text(key, "gelu_pytorch_tanh");
      // The first configs say hidden_act "gelu" and mean the tanh form; Gemma 2 and 3 do not read
      // it.
      const bool means_tanh =
          activation == "gelu" && (key == std::string("hidden_act") || is(kGemma1));
      if (!is_gelu_tanh(activation) && !means_tanh) {
        keys_.fail(key, fmt::format("is '{}'; Gemma uses gelu_pytorch_tanh", activation));
      }
    }
  }

  void read_attention() {
    auto scalar = static_cast<double>(layer_.head_dim);
    if (!is(kGemma1)) {
      scalar = keys_.positive_number("query_pre_attn_scalar", 256.0);
    }
    layer_.query_scale = 1.0 / std::sqrt(scalar);
    layer_.qkv_bias = layer_.output_bias = keys_.boolean("attention_bias", false);
    layer_.qk_norm = is(kGemma3);
    layer_.post_norms = !is(kGemma1) && !is(kVault);
    model_.mlp_norm = gemma_mlp_norm(config().family);
    if (is(kGemma2) || is(kVault)) {
      layer_.soft_cap = keys_.soft_cap("attn_logit_softcapping", 50.0);
      config().final_soft_cap = keys_.soft_cap("final_logit_softcapping", 30.0);
    } else if (is(kGemma3)) {
      config().final_soft_cap = keys_.soft_cap("final_logit_softcapping", 0.0);
    }
    config().bidirectional = keys_.boolean("use_bidirectional_attention", false);
    if (config().bidirectional && !is(kGemma3)) {
      keys_.fail("use_bidirectional_attention", "is supported for gemma3_text only");
    }
  }

  std::vector<bool> default_pattern() const {
    int64_t pattern = 2;  // Gemma 2, VaultGemma: every second layer is full, sliding first
    if (is(kGemma3)) {
      // transformers writes "_sliding_window_pattern" beside layer_types and never reads it.
      pattern = keys_.positive("sliding_window_pattern", 6);
    }
    std::vector<bool> sliding;
    for (int64_t layer = 1; layer <= config().num_layers; ++layer) {
      sliding.push_back(layer % pattern != 0);
    }
    return sliding;
  }

  std::vector<bool> sliding_layers() const {
    if (is(kGemma1)) {
      return std::vector<bool>(static_cast<size_t>(config().num_layers), false);
    }
    return keys_.has("layer_types") ? read_layer_types(keys_, config().num_layers)
                                    : default_pattern();
  }

  int64_t read_window(const std::vector<bool>& sliding) const {
    const bool any = std::find(sliding.begin(), sliding.end(), true) != sliding.end();
    if (is(kGemma1) || (!any && !keys_.has("sliding_window"))) {
      return 0;
    }
    const auto missing =
        keys_.contains("sliding_window") ? std::nullopt : std::optional(defaults_.window);
    const int64_t window = keys_.positive("sliding_window", missing);
    return config().bidirectional ? window / 2 + 1 : window;
  }

  /// Gemma 3: one of each kind of layer; an old rope_scaling is of the full layers.
  void read_two_ropes(RopeConfig& full, RopeConfig& sliding) const {
    full.theta = keys_.positive_number("rope_theta", 1e6);
    sliding.theta = keys_.positive_number("rope_local_base_freq", 1e4);
    if (keys_.has("rope_parameters")) {
      const JsonKeys ropes = keys_.object("rope_parameters");
      for (const std::string& name : ropes.names()) {
        if (name != "full_attention" && name != "sliding_attention") {
          ropes.fail(name, "is unknown here; known: full_attention, sliding_attention");
        }
      }
      if (ropes.has("full_attention")) {
        full = read_rope(ropes.object("full_attention"), full.theta);
      }
      if (ropes.has("sliding_attention")) {
        sliding = read_rope(ropes.object("sliding_attention"), sliding.theta);
      }
    }
    if (keys_.has("rope_scaling") && !keys_.object("rope_scaling").names().empty()) {
      full = read_rope(keys_.object("rope_scaling"), full.theta);
    }
  }

  void read_layers() {
    const std::vector<bool> sliding = sliding_layers();
    config().sliding_window = read_window(sliding);
    RopeConfig full_rope;
    RopeConfig sliding_rope;
    if (is(kGemma3)) {
      read_two_ropes(full_rope, sliding_rope);
    } else {
      full_rope = sliding_rope = read_one_rope(keys_);
    }
    for (const bool slides : sliding) {
      model_.plan.push_back(layer_);
      model_.plan.back().window = slides ? config().sliding_window : 0;
      model_.plan.back().rope = slides ? sliding_rope : full_rope;
    }
  }

  void read_tokens() {
    config().end_ids = keys_.has("eos_token_id") ? read_end_ids(keys_, config().vocab_size)
                                                 : std::vector<Token>{1};
    config().bos_id = read_bos_id(keys_, config().vocab_size, 2);
  }

  const JsonKeys& keys_;
  bool wrapped_;
  WrapperDefaults defaults_;
  ModelDescription model_;
  LayerPlan layer_;  ///< what all layers share
};

}  // namespace

const std::vector<std::string>& gemma_model_types() {
  static const std::vector<std::string> types = {kGemma1, kGemma2, kVault, kGemma3, kWrapper};
  return types;
}

const char* gemma_mlp_norm(const std::string& family) {
  return family == kVault ? "pre_feedforward_layernorm" : "post_attention_layernorm";
}

ModelDescription parse_gemma_config(const std::string& text, const std::string& where,
                                    const KeyNames& names) {
  json parsed = parse_json_object(text, where);
  merge_rope_scaling(parsed, where);
  if (parsed.contains("text_config")) {
    merge_rope_scaling(parsed["text_config"], where + ": text_config");
  }
  const JsonKeys keys(parsed, where, names);
  std::string dtype = torch_dtype(keys);
  ModelDescription model;
  if (keys.text("model_type", "") != kWrapper) {
    model = GemmaReader(keys, false).read();
  } else {
    refuse_unsupported_keys(keys);
    const JsonKeys inner = keys.object("text_config");
    model = GemmaReader(inner, true).read();
    if (keys.has("eos_token_id")) {
      model.config.end_ids = read_end_ids(keys, model.config.vocab_size);
    }
    // The wrapper's model has the head: it does not look into text_config for these.
    model.config.tie_word_embeddings = keys.boolean("tie_word_embeddings", true);
    model.config.final_soft_cap = 0.0;
    if (const std::string own = torch_dtype(inner); !own.empty()) {
      dtype = own;
    }
  }
  model.text = gemma_config_json(model, dtype);
  return model;
}

ModelDescription load_gemma_config(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) {
    throw WeightsError(
        fmt::format("{}: no such folder. Name a Hugging Face checkpoint folder.", folder.string()));
  }
  refuse_head(folder);
  const auto path = folder / "config.json";
  ModelDescription model = parse_gemma_config(read_file(path), path.string());
  if (auto ends = read_generation_ends(folder, model.config.vocab_size)) {
    model.config.end_ids = *std::move(ends);
    json text = json::parse(model.text);
    text["eos_token_id"] = model.config.end_ids;
    model.text = text.dump(2) + "\n";
  }
  return model;
}

}  // namespace specdec
