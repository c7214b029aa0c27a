#include "core/families/gemma/gemma4_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/gemma/gemma4_branches.h"
#include "core/families/gemma/merged_rope.h"
#include "core/families/token_ids.h"
#include "core/families/unsupported_keys.h"
#include "core/formats/strict_json.h"
#include "core/transformer/layer_types.h"
#include "core/transformer/rope_config.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kGemma3n = "gemma3n_text";

class Gemma4Reader {
 public:
  enum class Kind { kModel, kAssistant };
  explicit Gemma4Reader(const JsonKeys& keys, Kind kind = Kind::kModel)
      : keys_(keys), type_(keys.text("model_type", "")), kind_(kind) {}

  ModelDescription read() {
    is_3n_ = type_ == kGemma3n;
    refuse_unsupported();
    read_model();
    read_windows();
    for (int64_t layer = 0; layer < model_.config.num_layers; ++layer) {
      model_.plan.push_back(layer_plan(layer));
    }
    read_per_layer_config();
    read_raw_values();
    share_keys_and_values();
    for (size_t layer = 0; layer < model_.plan.size(); ++layer) {
      check_heads(layer);
      LayerPlan& plan = model_.plan[layer];
      plan.rope = rope(sliding_[layer], plan.head_dim);
    }
    model_.scaled_embedding = true;
    model_.text = description_text(model_);
    return std::move(model_);
  }

 private:
  void refuse_unsupported() const {
    refuse_unsupported_keys(keys_);
    const std::string activation = keys_.text("hidden_activation", "gelu_pytorch_tanh");
    if (activation != "gelu_pytorch_tanh") {
      keys_.fail("hidden_activation",
                 fmt::format("is '{}'; Gemma uses gelu_pytorch_tanh", activation));
    }
    if (keys_.has("use_bidirectional_attention")) {
      const json& value = keys_.at("use_bidirectional_attention");
      if (value != "vision" && value != false) {  // "vision": image tokens only
        keys_.fail("use_bidirectional_attention",
                   fmt::format("is {}; supported: null and \"vision\"", describe_json(value)));
      }
    }
  }

  void read_model() {
    TransformerConfig& config = model_.config;
    config.family = type_;
    config.vocab_size = keys_.positive("vocab_size", is_3n_ ? 262400 : 262144);
    config.hidden_size = keys_.positive("hidden_size");
    config.num_layers = read_layer_count(keys_);
    config.rms_norm_eps = keys_.rms_norm_eps();
    config.max_position_embeddings =
        keys_.positive("max_position_embeddings", is_3n_ ? 32768 : 131072);
    config.tie_word_embeddings = keys_.boolean("tie_word_embeddings", true);
    config.final_soft_cap = keys_.soft_cap("final_logit_softcapping", is_3n_ ? 30.0 : 0.0);
    config.end_ids =
        keys_.has("eos_token_id") ? read_end_ids(keys_, config.vocab_size) : std::vector<Token>{1};
    config.bos_id = read_bos_id(keys_, config.vocab_size, 2);
    per_layer_size_ = optional_size("hidden_size_per_layer_input", usual_per_layer_size());
    if (per_layer_size_ > 0) {
      config.per_layer_vocab = keys_.positive("vocab_size_per_layer_input", 262144);
      config.per_layer_count = config.num_layers;
    }
    shared_ = optional_size("num_kv_shared_layers", is_3n_ ? 15 : 0);
    if (kind_ == Kind::kAssistant) {
      if (shared_ == 0) {
        shared_ = config.num_layers;  // as transformers fills it in
      }
      if (shared_ != config.num_layers) {
        keys_.fail("num_kv_shared_layers", fmt::format("is {}, of {} layers; those of an assistant "
                                                       "all read the target's keys and values",
                                                       shared_, config.num_layers));
      }
    } else if (shared_ >= config.num_layers) {
      keys_.fail("num_kv_shared_layers",
                 fmt::format("is {}, of {} layers: none is left whose keys and values they could "
                             "read",
                             shared_, config.num_layers));
    }
  }

  /// What transformers' classes take for a missing key. Unified models and assistants have no
  /// per-layer embeddings.
  int64_t usual_per_layer_size() const {
    return type_ != "gemma4_unified_text" && kind_ == Kind::kModel ? 256 : 0;
  }

  /// A size that may be 0 or null.
  int64_t optional_size(const char* key, int64_t missing) const {
    if (!keys_.has(key)) {
      return keys_.contains(key) ? 0 : missing;
    }
    return keys_.integer(key) == 0 ? 0 : keys_.positive(key);
  }

  void read_windows() {
    const int64_t layers = model_.config.num_layers;
    const int64_t period = is_3n_ ? 5 : 6;
    for (int64_t layer = 0; layer < layers; ++layer) {
      sliding_.push_back((layer + 1) % period != 0);
    }
    if (keys_.has("layer_types")) {
      sliding_ = read_layer_types(keys_, layers);
    }
    if (!is_3n_) {
      sliding_.back() = false;  // whatever the list says
    }
    if (std::find(sliding_.begin(), sliding_.end(), true) != sliding_.end()) {
      model_.config.sliding_window = keys_.positive("sliding_window", 512);
    }
  }

  LayerPlan layer_plan(int64_t index) const {
    const bool sliding = sliding_[static_cast<size_t>(index)];
    LayerPlan layer;
    layer.heads = keys_.positive("num_attention_heads");
    layer.kv_heads = kv_heads(sliding);
    layer.head_dim = head_dim(sliding);
    layer.intermediate_size = intermediate_size(index);
    layer.window = sliding ? model_.config.sliding_window : 0;
    layer.qkv_bias = layer.output_bias = keys_.boolean("attention_bias", false);
    layer.qk_norm = true;
    layer.value_norm = true;
    layer.post_norms = true;
    layer.per_layer_size = per_layer_size_;
    layer.per_layer_index = per_layer_size_ > 0 ? index : 0;
    if (is_3n_) {
      layer.sparsity_cut =
          read_sparsity_cut(keys_, model_.config.num_layers, static_cast<size_t>(index));
      layer.laurel_rank = keys_.positive("laurel_rank", 64);
      layer.altup = read_altup(keys_);
      return layer;
    }
    layer.layer_scalar = true;
    if (keys_.boolean("attention_k_eq_v", false) && !sliding) {
      layer.values = ValueKind::kRawKeys;
    }
    if (keys_.boolean("enable_moe_block", false)) {
      layer.experts = read_experts(keys_);
    }
    return layer;
  }

  int64_t kv_heads(bool sliding) const {
    const bool own = !sliding && !is_3n_ && keys_.boolean("attention_k_eq_v", false) &&
                     keys_.has("num_global_key_value_heads");
    return keys_.positive(own ? "num_global_key_value_heads" : "num_key_value_heads");
  }

  int64_t head_dim(bool sliding) const {
    const int64_t local = keys_.positive("head_dim", 256);
    if (sliding || is_3n_ || keys_.has("per_layer_config")) {
      return local;
    }
    return keys_.positive("global_head_dim", 512);
  }

  int64_t intermediate_size(int64_t layer) const {
    const char* key = "intermediate_size";
    const bool doubled = !is_3n_ && keys_.boolean("use_double_wide_mlp", false) &&
                         layer >= model_.config.num_layers - shared_;
    if (keys_.has(key) && keys_.at(key).is_array()) {
      const json& sizes = keys_.at(key);
      const auto index = static_cast<size_t>(layer);
      if (static_cast<int64_t>(sizes.size()) != model_.config.num_layers ||
          !sizes[index].is_number_integer() || sizes[index].get<int64_t>() <= 0 ||
          sizes[index].get<int64_t>() > (1 << 24)) {
        keys_.fail(key,
                   fmt::format("should be a size or a list of {} sizes", model_.config.num_layers));
      }
      return sizes[index].get<int64_t>();  // of the file: what is doubled is doubled there
    }
    return keys_.positive(key) * (doubled ? 2 : 1);
  }

  /// A layer's number that a config names; fails for one that does not exist.
  size_t layer_index(const char* key, const std::string& text) const {
    int64_t index = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (error != std::errc() || end != text.data() + text.size() || index < 0 ||
        index >= model_.config.num_layers) {
      keys_.fail(key, fmt::format("names layer {}, of {} layers", text, model_.config.num_layers));
    }
    return static_cast<size_t>(index);
  }

  void read_per_layer_config() {
    const char* key = "per_layer_config";
    if (!keys_.has(key)) {
      return;
    }
    const JsonKeys layers = keys_.object(key);
    for (const std::string& name : layers.names()) {
      LayerPlan& plan = model_.plan[layer_index(key, name)];
      const JsonKeys layer = layers.object(name.c_str());
      for (const std::string& what : layer.names()) {
        if (what != "head_dim" && what != "num_key_value_heads") {
          layer.fail(what, "is unknown here; known: head_dim, num_key_value_heads");
        }
      }
      plan.head_dim = layer.positive("head_dim", plan.head_dim);
      plan.kv_heads = layer.positive("num_key_value_heads", plan.kv_heads);
    }
  }

  void read_raw_values() {
    const char* key = "raw_value_layers";
    if (keys_.has(key)) {
      for (const json& layer : keys_.at(key)) {
        model_.plan[layer_index(key, layer.dump())].values = ValueKind::kRawKeys;
      }
    }
  }

  /// The last layers read keys and values of the last layer of their type that has its own.
  void share_keys_and_values() {
    if (kind_ == Kind::kAssistant) {
      for (LayerPlan& plan : model_.plan) {
        plan.kv_source = 0;
        plan.values = ValueKind::kProjected;
      }
      return;
    }
    const auto own = static_cast<size_t>(model_.config.num_layers - shared_);
    for (size_t layer = own; layer < sliding_.size(); ++layer) {
      LayerPlan& plan = model_.plan[layer];
      for (size_t source = own; source-- > 0 && plan.kv_source < 0;) {
        if (sliding_[source] == sliding_[layer]) {
          plan.kv_source = static_cast<int64_t>(source);
        }
      }
      if (plan.kv_source < 0) {
        keys_.fail("num_kv_shared_layers",
                   fmt::format("is {}, but no layer before them is of the type of layer {}",
                               shared_, layer));
      }
      const LayerPlan& source = model_.plan[static_cast<size_t>(plan.kv_source)];
      plan.values = ValueKind::kProjected;
      if (source.head_dim != plan.head_dim || source.kv_heads != plan.kv_heads) {
        keys_.fail("num_kv_shared_layers",
                   fmt::format("makes layer {} read layer {}, whose heads are others", layer,
                               plan.kv_source));
      }
    }
  }

  void check_heads(size_t layer) const {
    const LayerPlan& plan = model_.plan[layer];
    if (plan.heads % plan.kv_heads != 0) {
      keys_.fail("num_key_value_heads",
                 fmt::format("is {} in layer {}, which does not divide the {} attention heads",
                             plan.kv_heads, layer, plan.heads));
    }
    if (plan.head_dim % 2 != 0) {
      keys_.fail("head_dim", fmt::format("is {} in layer {}; rotary embeddings need an even number",
                                         plan.head_dim, layer));
    }
  }

  RopeConfig rope(bool sliding, int64_t head_dim) const {
    RopeConfig rope{.theta = sliding ? 1e4 : 1e6};
    if (is_3n_) {  // transformers' Gemma 4 has no old keys and does not look at them
      rope.theta =
          keys_.positive_number(sliding ? "rope_local_base_freq" : "rope_theta", rope.theta);
      if (!sliding && keys_.has("rope_scaling") && !keys_.object("rope_scaling").names().empty()) {
        read_rope(keys_.object("rope_scaling"), head_dim, rope);
        return rope;
      }
    }
    const char* type = sliding ? "sliding_attention" : "full_attention";
    if (keys_.has("rope_parameters") && keys_.object("rope_parameters").has(type)) {
      read_rope(keys_.object("rope_parameters").object(type), head_dim, rope);
    } else if (!sliding && !is_3n_) {
      rope.rotated_pairs = rotated_pairs(0.25, head_dim);
      if (rope.rotated_pairs == 0) {
        keys_.fail("head_dim", "is too small in full layers: a quarter of it holds no pair");
      }
    }
    return rope;
  }

  static void read_rope(const JsonKeys& keys, int64_t head_dim, RopeConfig& rope) {
    const std::string type = rope_type(keys);
    rope.theta = keys.positive_number("rope_theta", rope.theta);
    if (type == "proportional") {
      const double share = keys.positive_number("partial_rotary_factor", 1.0);
      rope.rotated_pairs = share >= 1.0 ? 0 : rotated_pairs(share, head_dim);
      rope.factor = keys.positive_number("factor", 1.0);
      if (share < 1.0 && rope.rotated_pairs == 0) {
        keys.fail("partial_rotary_factor",
                  fmt::format("is {}: of {} numbers a head no pair is rotated", share, head_dim));
      }
      return;
    }
    refuse_partial_rotation(keys);
    if (type == "linear") {
      rope.factor = keys.positive_number("factor");
    } else if (type != "default") {
      keys.fail("rope_type",
                fmt::format("is '{}'; supported: default, linear, proportional", type));
    }
  }

  static int64_t rotated_pairs(double share, int64_t head_dim) {
    return static_cast<int64_t>(share * static_cast<double>(head_dim) / 2.0);
  }

  const JsonKeys& keys_;
  std::string type_;
  Kind kind_;
  bool is_3n_ = false;
  ModelDescription model_;
  std::vector<bool> sliding_;  // [layers]
  int64_t per_layer_size_ = 0;
  int64_t shared_ = 0;
};

bool is_wrapper(const std::string& type) {
  return type == "gemma3n" || type == "gemma4" || type == "gemma4_unified";
}

}  // namespace

const std::vector<std::string>& gemma4_model_types() {
  static const std::vector<std::string> types = {
      "gemma3n_text", "gemma3n", "gemma4_text", "gemma4", "gemma4_unified_text", "gemma4_unified"};
  return types;
}

ModelDescription parse_gemma4_config(const std::string& text, const std::string& where,
                                     const KeyNames& names) {
  json parsed = parse_json_object(text, where);
  const JsonKeys keys(parsed, where, names);
  const std::string type = keys.text("model_type", "");
  if (!is_wrapper(type)) {
    const auto& known = gemma4_model_types();
    if (std::find(known.begin(), known.end(), type) == known.end()) {
      keys.fail("model_type", fmt::format("is '{}'; supported: {}", type, fmt::join(known, ", ")));
    }
    if (type == kGemma3n) {
      merge_rope_scaling(parsed, where);
    }
    return Gemma4Reader(keys).read();
  }
  refuse_unsupported_keys(keys);
  if (parsed.contains("text_config") && parsed["text_config"].is_object() &&
      !keys.object("text_config").has("model_type")) {
    parsed["text_config"]["model_type"] = type + "_text";
  }
  if (keys.object("text_config").text("model_type", "") == kGemma3n) {
    merge_rope_scaling(parsed["text_config"], where + ": text_config");
  }
  // The wrapper's keys of the whole model count more than its text model's.
  ModelDescription model = Gemma4Reader(keys.object("text_config")).read();
  model.config.tie_word_embeddings =
      keys.boolean("tie_word_embeddings", model.config.tie_word_embeddings);
  if (keys.has("eos_token_id")) {
    model.config.end_ids = read_end_ids(keys, model.config.vocab_size);
  }
  model.text = description_text(model);
  return model;
}

ModelDescription read_assistant_layers(const JsonKeys& text_config) {
  return Gemma4Reader(text_config, Gemma4Reader::Kind::kAssistant).read();
}

ModelDescription load_gemma4_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  ModelDescription model = parse_gemma4_config(read_file(path), path.string());
  if (auto ends = read_generation_ends(folder, model.config.vocab_size)) {
    model.config.end_ids = *std::move(ends);
  }
  return model;
}

}  // namespace specdec
