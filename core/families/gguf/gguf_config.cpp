#include "core/families/gguf/gguf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/gemma/config.h"
#include "core/families/gemma/gemma4_config.h"
#include "core/families/gguf/gguf_gemma4.h"
#include "core/families/gguf/gguf_keys.h"
#include "core/families/llama/config.h"
#include "core/families/unsupported_models.h"

namespace specdec {
namespace {

using nlohmann::json;

/// Keys of a config.json, and of an architecture's metadata.
constexpr const char* kKeys[][2] = {{"hidden_size", "embedding_length"},
                                    {"intermediate_size", "feed_forward_length"},
                                    {"num_hidden_layers", "block_count"},
                                    {"num_attention_heads", "attention.head_count"},
                                    {"num_key_value_heads", "attention.head_count_kv"},
                                    {"head_dim", "attention.key_length"},
                                    {"max_position_embeddings", "context_length"},
                                    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
                                    {"rope_theta", "rope.freq_base"},
                                    {"rope_local_base_freq", "rope.freq_base_swa"},
                                    {"sliding_window", "attention.sliding_window"},
                                    {"layer_types", "attention.sliding_window_pattern"},
                                    {"attn_logit_softcapping", "attn_logit_softcapping"},
                                    {"final_logit_softcapping", "final_logit_softcapping"}};

/// Writes the metadata as the config.json that says the same, which the families read.
class GgufConfig {
 public:
  explicit GgufConfig(const GgufKeys& keys)
      : keys_(keys),
        file_(keys.file()),
        metadata_(keys.metadata()),
        architecture_(keys.architecture()) {}

  /// What all architectures have.
  json common(const char* model_type) const {
    refuse_unsupported();
    json config = {{"model_type", model_type},
                   {"vocab_size", keys_.vocabulary()},
                   {"hidden_size", integer("embedding_length")},
                   {"intermediate_size", keys_.same_in_layers("feed_forward_length")},
                   {"num_hidden_layers", integer("block_count")},
                   {"num_attention_heads", heads()},
                   {"max_position_embeddings", integer("context_length")},
                   {"rms_norm_eps", number("attention.layer_norm_rms_epsilon")},
                   {"tie_word_embeddings", file_.find("output.weight") == nullptr},
                   {"eos_token_id", keys_.end_ids()},
                   {"bos_token_id", keys_.bos_id()}};  // null: a missing one has a default
    config["num_key_value_heads"] =
        has("attention.head_count_kv") ? keys_.same_in_layers("attention.head_count_kv") : heads();
    config["head_dim"] = head_dim();
    return config;
  }

  json llama(const char* model_type) const {
    if (metadata_.integer(key("expert_count"), 0) > 0) {
      metadata_.fail(key("expert_count"),
                     "says that the model has experts, which are not supported");
    }
    json config = common(model_type);
    config["rope_theta"] = metadata_.number(key("rope.freq_base"), 10000.0);
    const json scaling = rope_scaling();
    if (!scaling.is_null()) {
      config["rope_scaling"] = scaling;
    }
    return config;
  }

  json gemma(const char* model_type) const {
    json config = common(model_type);
    const int64_t layers = integer("block_count");
    config["rope_theta"] =
        metadata_.number(key("rope.freq_base"), architecture_ == "gemma3" ? 1e6 : 1e4);
    config["rope_local_base_freq"] = metadata_.number(key("rope.freq_base_swa"), 1e4);
    const json scaling = rope_scaling();
    if (!scaling.is_null()) {
      config["rope_scaling"] = scaling;
    }
    if (architecture_ == "gemma") {
      return config;
    }
    if (architecture_ == "gemma2" || window(0) > 0) {
      config["sliding_window"] = window(4096);
      config["layer_types"] = layer_types(layers, architecture_ == "gemma2" ? 2 : 6);
    } else {  // as in llama.cpp: a Gemma 3 without a window has none
      config["sliding_window_pattern"] = 1;
    }
    for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (has(cap)) {
        config[cap] = number(cap);
      }
    }
    // The file does not say it: the 27B models are known by their numbers of layers.
    const bool largest = layers == (architecture_ == "gemma2" ? 46 : 62);
    config["query_pre_attn_scalar"] =
        largest ? integer("embedding_length") / std::max<int64_t>(1, heads()) : head_dim();
    if (has("attention.scale")) {  // where `specdec convert` found another
      const double scalar = std::pow(keys_.positive("attention.scale"), -2.0);
      const double whole = std::round(scalar);  // the scale is rounded to float32
      config["query_pre_attn_scalar"] =
          std::abs(scalar - whole) < 1e-5 * whole ? json(std::llround(whole)) : json(scalar);
    }
    return config;
  }

  /// 0 = none.
  int64_t window(int64_t missing) const {
    const std::string name = key("attention.sliding_window");
    const int64_t size = metadata_.integer(name, missing);
    if (size < 0) {
      metadata_.fail(name, fmt::format("is {}, but should be 0 (no window) or more", size));
    }
    return size;
  }

  /// Reads the windows of a model of Llama's kind. llama.cpp knows none there; `specdec convert`
  /// writes them.
  void read_windows(ModelDescription& model) const {
    const int64_t size = window(0);
    if (size == 0) {
      return;
    }
    model.config.sliding_window = size;
    const std::string pattern = key("attention.sliding_window_pattern");
    const auto sliding = metadata_.has(pattern) ? metadata_.integers(pattern)
                                                : std::vector<int64_t>(model.plan.size(), 1);
    if (sliding.size() != model.plan.size()) {
      metadata_.fail(
          pattern, fmt::format("has {} entries for {} layers", sliding.size(), model.plan.size()));
    }
    for (size_t layer = 0; layer < sliding.size(); ++layer) {
      model.plan[layer].window = sliding[layer] != 0 ? size : 0;
    }
  }

  /// Llama 3's scaling, which is a tensor here; empty without it.
  std::vector<double> rope_divisors(int64_t head_dim) const {
    const TensorEntry* entry = file_.find("rope_freqs.weight");
    if (entry == nullptr) {
      return {};
    }
    if (entry->dtype != DType::kF32 || entry->shape != std::vector<int64_t>{head_dim / 2}) {
      throw WeightsError(
          fmt::format("{}: tensor 'rope_freqs.weight' should hold {} values of type "
                      "F32.",
                      metadata_.where(), head_dim / 2));
    }
    std::vector<float> values(static_cast<size_t>(head_dim / 2));
    std::memcpy(values.data(), entry->bytes.data(), entry->bytes.size());
    for (const float value : values) {
      if (!(value > 0.0F && std::isfinite(value))) {
        throw WeightsError(
            fmt::format("{}: tensor 'rope_freqs.weight' holds {}; its values should "
                        "be positive and finite.",
                        metadata_.where(), value));
      }
    }
    return {values.begin(), values.end()};
  }

  /// What the file calls the keys of that config.json.
  KeyNames key_names() const {
    KeyNames names = {{"vocab_size", "token_embd.weight"}};
    for (const auto& [hub, own] : kKeys) {
      names.emplace(hub, key(own));
    }
    return names;
  }

  bool has_bias(const char* part) const {
    return file_.find(fmt::format("blk.0.{}.bias", part)) != nullptr;
  }

 private:
  std::string key(const std::string& name) const { return keys_.key(name); }
  int64_t integer(const char* name) const { return keys_.integer(name); }
  double number(const char* name) const { return keys_.number(name); }
  bool has(const char* name) const { return keys_.has(name); }
  int64_t heads() const { return keys_.heads(); }

  int64_t head_dim() const {
    if (has("attention.key_length")) {
      return integer("attention.key_length");
    }
    const int64_t hidden = integer("embedding_length");
    if (heads() <= 0 || hidden % heads() != 0) {
      metadata_.fail(
          key("attention.head_count"),
          fmt::format("is {}, which does not divide '{}' ({}); then '{}' is needed", heads(),
                      key("embedding_length"), hidden, key("attention.key_length")));
    }
    return hidden / heads();
  }

  void refuse_unsupported() const {
    for (const char* name : {"rope.dimension_count", "attention.value_length"}) {
      const int64_t values = metadata_.integer(key(name), head_dim());
      if (values != head_dim()) {
        metadata_.fail(key(name),
                       fmt::format("is {}, but the keys of a head have {} values ('{}'); "
                                   "only the same number is supported",
                                   values, head_dim(), key("attention.key_length")));
      }
    }
    if (!metadata_.boolean(key("attention.causal"), true)) {
      metadata_.fail(key("attention.causal"), "is false: encoders are not supported");
    }
  }

  json rope_scaling() const {
    // A factor alone is that of a linear scaling, as in llama.cpp, also under its old key.
    const double old_factor = metadata_.number(key("rope.scale_linear"), 1.0);
    const double factor = metadata_.number(key("rope.scaling.factor"), old_factor);
    const bool scaled = factor != 0.0 && factor != 1.0;
    if (factor < 0.0) {
      metadata_.fail(key(has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear"),
                     fmt::format("should be positive, but is {}", factor));
    }
    const std::string type = metadata_.text(key("rope.scaling.type"), scaled ? "linear" : "none");
    if (type == "none") {
      return nullptr;
    }
    if (type != "linear") {
      metadata_.fail(key("rope.scaling.type"),
                     fmt::format("is '{}', which is not supported; known: none, linear", type));
    }
    return scaled ? json{{"rope_type", "linear"}, {"factor", factor}} : json();
  }

  json layer_types(int64_t layers, int64_t period) const {
    const std::string name = key("attention.sliding_window_pattern");
    const auto& values = metadata_.values();
    const auto found = values.find(name);
    std::vector<int64_t> sliding;
    if (found != values.end() && std::holds_alternative<std::vector<int64_t>>(found->second)) {
      sliding = metadata_.integers(name);
    } else {
      const int64_t every = std::max<int64_t>(1, metadata_.integer(name, period));
      for (int64_t layer = 0; layer < std::min<int64_t>(layers, 1 << 16); ++layer) {
        sliding.push_back((layer + 1) % every != 0 ? 1 : 0);
      }
    }
    json types = json::array();
    for (const int64_t one : sliding) {
      types.push_back(one != 0 ? "sliding_attention" : "full_attention");
    }
    return types;
  }

  const GgufKeys& keys_;
  const GgufContent& file_;
  const GgufMetadata& metadata_;
  const std::string& architecture_;
};

ModelDescription describe_llama_file(const GgufKeys& keys, const char* type) {
  const GgufConfig config(keys);
  const std::string& where = keys.metadata().where();
  ModelDescription model = parse_llama_config(config.llama(type).dump(), where, config.key_names());
  const bool qkv = config.has_bias("attn_q");
  const bool output = config.has_bias("attn_output");
  const bool mlp = config.has_bias("ffn_gate");
  const auto divisors = config.rope_divisors(model.plan[0].head_dim);
  for (LayerPlan& layer : model.plan) {
    layer.qkv_bias = qkv;
    layer.output_bias = output;
    layer.mlp_bias = mlp;
    layer.rope.divisors = divisors;
  }
  config.read_windows(model);
  model.text = description_text(model);
  return model;
}

ModelDescription describe_gemma_file(const GgufKeys& keys, const char* type) {
  const GgufConfig config(keys);
  const std::string& where = keys.metadata().where();
  ModelDescription model = parse_gemma_config(config.gemma(type).dump(), where, config.key_names());
  if (!config.rope_divisors(model.plan[0].head_dim).empty()) {
    throw WeightsError(fmt::format(
        "{}: tensor 'rope_freqs.weight' scales the rotations, which is not supported in "
        "Gemma.",
        where));
  }
  model.norm_offset = 0.0;  // the file's norms have the 1 added
  return model;
}

ModelDescription describe_gemma4_file(const GgufKeys& keys, const char* type) {
  const bool is_gemma4 = std::string_view(type) == "gemma4_text";
  return parse_gemma4_config(is_gemma4 ? gemma4_config_json(keys) : gemma3n_config_json(keys),
                             keys.metadata().where(), gemma4_key_names(keys));
}

/// general.architecture, and the model_type and family that it is.
struct GgufArchitecture {
  const char* name;
  const char* model_type;
  ModelDescription (*describe)(const GgufKeys& keys, const char* model_type);
};
constexpr GgufArchitecture kArchitectures[] = {{"gemma", "gemma", describe_gemma_file},
                                               {"gemma2", "gemma2", describe_gemma_file},
                                               {"gemma3", "gemma3_text", describe_gemma_file},
                                               {"gemma3n", "gemma3n_text", describe_gemma4_file},
                                               {"gemma4", "gemma4_text", describe_gemma4_file},
                                               {"llama", "llama", describe_llama_file},
                                               {"qwen2", "qwen2", describe_llama_file},
                                               {"qwen3", "qwen3", describe_llama_file}};

}  // namespace

std::vector<std::string> gguf_architectures() {
  std::vector<std::string> names;
  for (const GgufArchitecture& known : kArchitectures) {
    names.emplace_back(known.name);
  }
  return names;
}

ModelDescription describe_gguf(const GgufContent& file) {
  const std::string name = file.metadata.text("general.architecture");
  for (const GgufArchitecture& known : kArchitectures) {
    if (name == known.name) {
      const GgufKeys keys(file, name);
      ModelDescription model = known.describe(keys, known.model_type);
      model.config.suppressed_ids = keys.suppressed_ids(model.config.vocab_size);
      return model;
    }
  }
  file.metadata.fail("general.architecture",
                     fmt::format("is '{}'{}; known: {}", name, unsupported_family(name),
                                 fmt::join(gguf_architectures(), ", ")));
}

}  // namespace specdec
