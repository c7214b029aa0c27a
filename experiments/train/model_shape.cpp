#include "experiments/train/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/gemma/gemma4_config.h"
#include "core/families/gemma/plan.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"
#include "experiments/config/config_node.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kGemma4Text = "gemma4_text";
const Range<int64_t> kAnySize{1, 1 << 24};

/// What both families' shapes say.
GemmaConfig read_gemma3(const ConfigNode& node) {
  GemmaConfig config;
  config.family = GemmaFamily::kGemma3;
  config.vocab_size = 2;
  config.hidden_size = node.require<int64_t>("hidden_size", kAnySize);
  config.intermediate_size = node.require<int64_t>("intermediate_size", kAnySize);
  config.num_layers = node.require<int64_t>("layers", {1, 1024});
  config.num_heads = node.require<int64_t>("heads", {1, 1024});
  config.num_kv_heads = node.get<int64_t>("kv_heads", 1, {1, 1024});
  config.head_dim = node.get<int64_t>("head_dim", 64, {2, 1024});
  config.sliding_window = node.get<int64_t>("sliding_window", 64, kAnySize);
  const auto pattern = node.get<int64_t>("sliding_window_pattern", 6, {1, 1024});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    config.sliding_layers.push_back((layer + 1) % pattern != 0);
  }
  config.max_position_embeddings = node.get<int64_t>("max_position_embeddings", 1024, kAnySize);
  config.global_rope.theta = node.get<double>("rope_theta", 1e4, {1.0, 1e12});
  config.local_rope.theta = node.get<double>("rope_local_base_freq", 1e4, {1.0, 1e12});
  config.query_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  config.end_ids = {1};
  if (config.num_heads % config.num_kv_heads != 0) {
    node.fail("kv_heads", "should divide heads");
  }
  if (config.head_dim % 2 != 0) {
    node.fail("head_dim", "should be even: rotary embeddings turn pairs");
  }
  return config;
}

/// The config.json of a Gemma 4 whose shape is Gemma 3's but for its full layers.
json read_gemma4(const ConfigNode& node, const GemmaConfig& like) {
  const auto full_dim = node.get<int64_t>("global_head_dim", 2 * like.head_dim, {8, 1024});
  const auto raw_values = node.get<bool>("attention_k_eq_v", true);
  const auto soft_cap = node.get<double>("final_logit_softcapping", 0.0, {0.0, 1e6});
  if (full_dim % 8 != 0) {
    node.fail("global_head_dim", "should be a multiple of 8: a quarter of its pairs is rotated");
  }
  json types = json::array();
  for (const bool sliding : like.sliding_layers) {
    types.push_back(sliding ? "sliding_attention" : "full_attention");
  }
  types.back() = "full_attention";
  return {
      {"architectures", {"Gemma4ForCausalLM"}},
      {"model_type", kGemma4Text},
      {"attention_bias", false},
      {"attention_k_eq_v", raw_values},
      {"bos_token_id", like.bos_id},
      {"enable_moe_block", false},
      {"eos_token_id", like.end_ids},
      {"final_logit_softcapping", soft_cap > 0.0 ? json(soft_cap) : json()},
      {"global_head_dim", full_dim},
      {"head_dim", like.head_dim},
      {"hidden_activation", "gelu_pytorch_tanh"},
      {"hidden_size", like.hidden_size},
      {"hidden_size_per_layer_input", 0},
      {"intermediate_size", like.intermediate_size},
      {"layer_types", types},
      {"max_position_embeddings", like.max_position_embeddings},
      {"num_attention_heads", like.num_heads},
      {"num_global_key_value_heads", raw_values ? json(like.num_kv_heads) : json()},
      {"num_hidden_layers", like.num_layers},
      {"num_key_value_heads", like.num_kv_heads},
      {"num_kv_shared_layers", 0},
      {"pad_token_id", 0},
      {"rms_norm_eps", like.rms_norm_eps},
      {"rope_parameters",
       {{"full_attention",
         {{"partial_rotary_factor", 0.25},
          {"rope_theta", like.global_rope.theta},
          {"rope_type", "proportional"}}},
        {"sliding_attention", {{"rope_theta", like.local_rope.theta}, {"rope_type", "default"}}}}},
      {"sliding_window", like.sliding_window},
      {"tie_word_embeddings", true},
      {"vocab_size", like.vocab_size}};
}

/// Whether save_gemma4 can store a layer.
bool is_dense(const LayerPlan& layer) {
  return layer.kv_source < 0 && layer.per_layer_size == 0 && layer.experts.count == 0 &&
         layer.altup.streams == 0;
}

}  // namespace

std::string read_model_shape(const ConfigNode& node) {
  const auto family = node.get<std::string>("family", "gemma3");
  const GemmaConfig config = read_gemma3(node);
  if (family == "gemma4") {
    return read_gemma4(node, config).dump(2) + "\n";
  }
  if (family != "gemma3") {
    node.fail("family", fmt::format("is '{}'; known: gemma3, gemma4", family));
  }
  return gemma_config_json(config);
}

std::string checkpoint_shape(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  const std::string text = read_file(path);
  const std::string type =
      JsonKeys(parse_json_object(text, path.string()), path.string()).text("model_type", "");
  const auto& newer = gemma4_model_types();
  if (std::find(newer.begin(), newer.end(), type) == newer.end()) {
    return gemma_config_json(load_gemma_config(folder));
  }
  const ModelDescription model = parse_gemma4_config(text, path.string());
  if (type != kGemma4Text || !std::all_of(model.plan.begin(), model.plan.end(), is_dense)) {
    throw WeightsError(
        fmt::format("{}: of Gemma 4 only dense text models (model_type {}) can be trained: without "
                    "shared keys and values, per-layer inputs and experts",
                    path.string(), kGemma4Text));
  }
  return text;
}

std::string shape_with_vocabulary(const std::string& shape, int64_t vocab_size) {
  json parsed = json::parse(shape);
  parsed["vocab_size"] = vocab_size;
  return parsed.dump(2) + "\n";
}

ModelDescription describe_shape(const std::string& shape) {
  const std::string where = "the model's shape";
  return json::parse(shape).at("model_type") == kGemma4Text
             ? parse_gemma4_config(shape, where)
             : describe_gemma(parse_gemma_config(shape, where));
}

}  // namespace specdec
