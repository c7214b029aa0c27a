#include "core/families/llama/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/families/token_ids.h"
#include "core/families/unsupported_keys.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"
#include "core/transformer/layer_types.h"
#include "core/transformer/rope_config.h"

namespace specdec {
namespace {

using nlohmann::json;

/// What a model_type means where its config says nothing.
struct TypeDefaults {
  const char* model_type;
  int64_t kv_heads;   ///< 0 = as many as heads
  int64_t head_dim;   ///< 0 = hidden / heads
  int64_t positions;  ///< max_position_embeddings
  Token bos, end;     ///< -1 = none
};

constexpr TypeDefaults kTypes[] = {{"llama", 0, 0, 2048, 1, 2},
                                   {"mistral", 8, 0, 131072, 1, 2},
                                   {"qwen2", 32, 0, 32768, -1, -1},
                                   {"qwen3", 32, 128, 32768, -1, -1}};

const TypeDefaults& defaults_of(const JsonKeys& keys) {
  const std::string type = keys.text("model_type", "");
  for (const TypeDefaults& known : kTypes) {
    if (type == known.model_type) {
      return known;
    }
  }
  keys.fail("model_type",
            fmt::format("is '{}'; supported: {}", type, fmt::join(llama_model_types(), ", ")));
}

class LlamaReader {
 public:
  explicit LlamaReader(const JsonKeys& keys) : keys_(keys), type_(defaults_of(keys)) {}

  ModelDescription read() {
    refuse_unsupported();
    read_model();
    read_layer();
    for (const bool windowed : windowed_layers()) {
      model_.plan.push_back(layer_);
      model_.plan.back().window = windowed ? model_.config.sliding_window : 0;
    }
    model_.text = description_text(model_);
    return std::move(model_);
  }

 private:
  bool is(const char* model_type) const { return model_type == std::string(type_.model_type); }

  void refuse_unsupported() const {
    refuse_unsupported_keys(keys_);
    const std::string activation = keys_.text("hidden_act", "silu");
    if (activation != "silu" && activation != "swish") {
      keys_.fail("hidden_act", fmt::format("is '{}'; supported: silu", activation));
    }
  }

  void read_model() {
    TransformerConfig& config = model_.config;
    config.family = type_.model_type;
    config.vocab_size = keys_.positive("vocab_size");
    config.hidden_size = keys_.positive("hidden_size");
    config.num_layers = read_layer_count(keys_);
    config.rms_norm_eps = keys_.rms_norm_eps();
    config.max_position_embeddings = keys_.positive("max_position_embeddings", type_.positions);
    config.tie_word_embeddings = keys_.boolean("tie_word_embeddings", false);
    config.end_ids = read_end_ids(keys_, config.vocab_size);
    if (!keys_.contains("eos_token_id") && type_.end >= 0) {  // null means none
      config.end_ids = {type_.end};
    }
    config.bos_id = read_bos_id(keys_, config.vocab_size, type_.bos);
  }

  void read_layer() {
    layer_.activation = Activation::kSilu;
    layer_.heads = keys_.positive("num_attention_heads");
    // Null means as many as heads, a missing key what the class says.
    const bool as_heads = type_.kv_heads == 0 || keys_.contains("num_key_value_heads");
    layer_.kv_heads =
        keys_.positive("num_key_value_heads", as_heads ? layer_.heads : type_.kv_heads);
    if (layer_.heads % layer_.kv_heads != 0) {
      keys_.fail("num_key_value_heads",
                 fmt::format("is {}, which does not divide the {} attention heads", layer_.kv_heads,
                             layer_.heads));
    }
    layer_.head_dim = head_dim();
    if (layer_.head_dim % 2 != 0) {
      keys_.fail("head_dim",
                 fmt::format("is {}; rotary embeddings need an even number", layer_.head_dim));
    }
    layer_.query_scale = 1.0 / std::sqrt(static_cast<double>(layer_.head_dim));
    layer_.intermediate_size = keys_.positive("intermediate_size");
    layer_.rope = read_llama_rope(keys_, layer_.head_dim, model_.config.max_position_embeddings);
    layer_.qk_norm = is("qwen3");
    const bool asked = (is("llama") || is("qwen3")) && keys_.boolean("attention_bias", false);
    layer_.qkv_bias = asked || is("qwen2");
    layer_.output_bias = asked;
    layer_.mlp_bias = is("llama") && keys_.boolean("mlp_bias", false);
  }

  int64_t head_dim() const {
    const int64_t hidden = model_.config.hidden_size;
    if (keys_.has("head_dim") || type_.head_dim != 0) {
      return keys_.positive("head_dim", type_.head_dim);
    }
    if (hidden % layer_.heads != 0) {
      keys_.fail("num_attention_heads",
                 fmt::format("is {}, which does not divide the hidden size {}; then 'head_dim' is "
                             "needed",
                             layer_.heads, hidden));
    }
    return hidden / layer_.heads;
  }

  /// Which layers see only a window; sets its size.
  std::vector<bool> windowed_layers() {
    const auto layers = static_cast<size_t>(model_.config.num_layers);
    std::vector<bool> windowed(layers, false);
    // Null means none, a missing key the release's window.
    const bool has_size = !keys_.contains("sliding_window") || keys_.has("sliding_window");
    if (is("mistral")) {
      if (has_size) {
        model_.config.sliding_window = keys_.positive("sliding_window", kWindow);
        windowed.assign(layers, true);
      }
    } else if (!is("llama")) {
      if (has_size && keys_.boolean("use_sliding_window", false)) {
        model_.config.sliding_window = keys_.positive("sliding_window", kWindow);
        const int64_t first = keys_.integer("max_window_layers", kWindowLayers);
        for (size_t layer = 0; layer < layers; ++layer) {
          windowed[layer] = static_cast<int64_t>(layer) >= first;
        }
      }
    }
    if (!is("llama") && keys_.has("layer_types")) {  // transformers calls such a Mistral Ministral
      windowed = listed_layers();
    }
    if (std::find(windowed.begin(), windowed.end(), true) == windowed.end()) {
      model_.config.sliding_window = 0;
    }
    return windowed;
  }

  std::vector<bool> listed_layers() const {
    std::vector<bool> windowed = read_layer_types(keys_, model_.config.num_layers);
    if (model_.config.sliding_window == 0 &&
        std::find(windowed.begin(), windowed.end(), true) != windowed.end()) {
      keys_.fail(
          "layer_types",
          "has \"sliding_attention\", but use_sliding_window is false, or sliding_window null");
    }
    return windowed;
  }

  static constexpr int64_t kWindow = 4096;
  static constexpr int64_t kWindowLayers = 28;

  const JsonKeys& keys_;
  const TypeDefaults& type_;
  ModelDescription model_;
  LayerPlan layer_;
};

}  // namespace

const std::vector<std::string>& llama_model_types() {
  static const std::vector<std::string> types = [] {
    std::vector<std::string> names;
    for (const TypeDefaults& known : kTypes) {
      names.emplace_back(known.model_type);
    }
    return names;
  }();
  return types;
}

ModelDescription parse_llama_config(const std::string& text, const std::string& where,
                                    const KeyNames& names) {
  const json parsed = parse_json_object(text, where);
  const JsonKeys keys(parsed, where, names);
  return LlamaReader(keys).read();
}

ModelDescription load_llama_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  ModelDescription model = parse_llama_config(read_file(path), path.string());
  auto& ends = model.config.end_ids;
  for (const Token id :
       read_generation_ends(folder, model.config.vocab_size).value_or(std::vector<Token>())) {
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) {
      ends.push_back(id);
    }
  }
  return model;
}

}  // namespace specdec
