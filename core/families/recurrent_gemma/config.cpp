#include "core/families/recurrent_gemma/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/token_ids.h"
#include "core/formats/strict_json.h"
#include "core/transformer/layer_types.h"
#include "core/transformer/rope_config.h"

namespace specdec {
namespace {

constexpr const char* kRecurrentGemma = "recurrent_gemma";
/// Configs name no longest input: the recurrence has none, and attention is local.
constexpr int64_t kLongest = int64_t{1} << 20;

class RecurrentGemmaReader {
 public:
  explicit RecurrentGemmaReader(const JsonKeys& keys) : keys_(keys) {}

  ModelDescription read() {
    refuse_unread();
    read_sizes();
    read_attention();
    read_recurrence();
    read_blocks();
    TransformerConfig& config = model_.config;
    config.end_ids =
        keys_.has("eos_token_id") ? read_end_ids(keys_, config.vocab_size) : std::vector<Token>{1};
    config.bos_id = read_bos_id(keys_, config.vocab_size, 2);
    model_.norm_offset = 1.0;
    model_.scaled_embedding = model_.bfloat16_scale = true;
    model_.text = description_text(model_);
    return std::move(model_);
  }

 private:
  void refuse_unread() const {
    for (const char* key : {"quantization", "quantization_config", "compression_config"}) {
      if (keys_.has(key)) {
        keys_.fail(key, "is not supported for recurrent_gemma; use the original checkpoint");
      }
    }
    for (const char* key : {"hidden_activation", "hidden_act"}) {
      const std::string activation = keys_.text(key, "gelu_pytorch_tanh");
      if (activation != "gelu_pytorch_tanh") {
        keys_.fail(key, fmt::format("is '{}'; supported: gelu_pytorch_tanh", activation));
      }
    }
    if (!keys_.boolean("embeddings_scale_by_sqrt_dim", true)) {
      keys_.fail("embeddings_scale_by_sqrt_dim", "is false, which transformers does not read");
    }
  }

  void read_sizes() {
    TransformerConfig& config = model_.config;
    config.family = kRecurrentGemma;
    config.vocab_size = keys_.positive("vocab_size", 256000);
    config.hidden_size = keys_.positive("hidden_size", 2560);
    config.num_layers = read_layer_count(keys_, 26);
    config.max_position_embeddings = keys_.positive("max_position_embeddings", kLongest);
    config.rms_norm_eps = keys_.rms_norm_eps();
    config.tie_word_embeddings = keys_.boolean("tie_word_embeddings", true);
    config.final_soft_cap = keys_.soft_cap("logits_soft_cap", 30.0);
    const int64_t both = keys_.positive("intermediate_size", 3 * 2560);
    if (both % 2 != 0) {
      keys_.fail("intermediate_size", fmt::format("is {}; half of it is the MLP's width", both));
    }
    layer_.intermediate_size = both / 2;
    layer_.mlp_bias = layer_.output_bias = true;
  }

  void read_attention() {
    const int64_t hidden = model_.config.hidden_size;
    LayerPlan& plan = attention_ = layer_;
    plan.heads = keys_.positive("num_attention_heads", 10);
    plan.kv_heads = keys_.positive("num_key_value_heads", plan.heads);
    if (hidden % plan.heads != 0 || plan.heads % plan.kv_heads != 0) {
      keys_.fail("num_attention_heads",
                 fmt::format("is {}, which should divide hidden_size {} and be a multiple of "
                             "num_key_value_heads {}",
                             plan.heads, hidden, plan.kv_heads));
    }
    plan.head_dim = hidden / plan.heads;
    if (const int64_t said = keys_.positive("head_dim", plan.head_dim); said != plan.head_dim) {
      keys_.fail("head_dim", fmt::format("is {}; heads have hidden_size / num_attention_heads = {} "
                                         "dimensions",
                                         said, plan.head_dim));
    }
    plan.query_scale = 1.0 / std::sqrt(static_cast<double>(plan.head_dim));
    plan.qkv_bias = keys_.boolean("attention_bias", false);
    plan.window = model_.config.sliding_window = keys_.positive("attention_window_size", 2048);
    read_rope(plan);
  }

  /// The first dimensions of a head are rotated, as if they were a whole one.
  void read_rope(LayerPlan& plan) {
    double theta = keys_.positive_number("rope_theta", 1e4);
    double part = keys_.positive_number("partial_rotary_factor", 0.5);
    if (keys_.has("rope_parameters")) {
      const JsonKeys rope = keys_.object("rope_parameters");
      refuse_layer_types(rope);
      theta = rope.positive_number("rope_theta", theta);
      part = rope.positive_number("partial_rotary_factor", part);
      if (const std::string type = rope_type(rope); type != "default") {
        rope.fail("rope_type", fmt::format("is '{}'; supported: default", type));
      }
    }
    plan.rope.theta = theta;
    const auto rotated = static_cast<int64_t>(static_cast<double>(plan.head_dim) * part);
    if (part > 1.0 || rotated < 2 || rotated % 2 != 0 || plan.head_dim % 2 != 0) {
      keys_.fail("partial_rotary_factor",
                 fmt::format("is {}, which rotates {} of a head's {} dimensions; an even number "
                             "from 2 on, of an even one, can be",
                             part, rotated, plan.head_dim));
    }
    if (rotated < plan.head_dim) {
      plan.rope.rotated_pairs = rotated / 2;
      plan.rope.exponent_dims = rotated;
    }
  }

  void read_recurrence() {
    LayerPlan& plan = recurrent_ = layer_;
    const int64_t width = keys_.positive("lru_width", model_.config.hidden_size);
    plan.heads = attention_.heads;
    plan.rope = attention_.rope;
    plan.qkv_bias = true;
    plan.recurrence.convolution_width = keys_.positive("conv1d_width", 4);
    if (width % plan.heads != 0) {
      keys_.fail("lru_width", fmt::format("is {}, no multiple of the {} heads, whose blocks its "
                                          "gates have",
                                          width, plan.heads));
    }
    plan.head_dim = width / plan.heads;
  }

  void read_blocks() {
    std::vector<std::string> types = {"recurrent", "recurrent", "attention"};
    if (keys_.has("block_types")) {
      const nlohmann::json& list = keys_.at("block_types");
      const bool is_list =
          list.is_array() && !list.empty() &&
          std::all_of(list.begin(), list.end(), [](const auto& type) { return type.is_string(); });
      if (!is_list) {
        keys_.fail("block_types", "should be a list of 'recurrent' and 'attention'");
      }
      types = list.get<std::vector<std::string>>();
    }
    for (int64_t layer = 0; layer < model_.config.num_layers; ++layer) {
      const std::string& type = types[static_cast<size_t>(layer) % types.size()];
      if (type != "recurrent" && type != "attention") {
        keys_.fail("block_types", fmt::format("names '{}'; known: recurrent, attention", type));
      }
      model_.plan.push_back(type == "recurrent" ? recurrent_ : attention_);
    }
  }

  const JsonKeys& keys_;
  ModelDescription model_;
  LayerPlan layer_;  ///< what all layers share
  LayerPlan attention_, recurrent_;
};

}  // namespace

const std::vector<std::string>& recurrent_gemma_model_types() {
  static const std::vector<std::string> types = {kRecurrentGemma};
  return types;
}

ModelDescription parse_recurrent_gemma_config(const std::string& text, const std::string& where,
                                              const KeyNames& names) {
  const auto parsed = parse_json_object(text, where);
  return RecurrentGemmaReader(JsonKeys(parsed, where, names)).read();
}

ModelDescription load_recurrent_gemma_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  ModelDescription model = parse_recurrent_gemma_config(read_file(path), path.string());
  if (auto ends = read_generation_ends(folder, model.config.vocab_size)) {
    model.config.end_ids = *std::move(ends);
  }
  return model;
}

}  // namespace specdec
