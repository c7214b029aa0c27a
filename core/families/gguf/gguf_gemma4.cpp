#include "core/families/gguf/gguf_gemma4.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kKvHeads = "attention.head_count_kv";
constexpr const char* kKeyLength = "attention.key_length";
constexpr const char* kSlidingKeyLength = "attention.key_length_swa";
constexpr const char* kMlp = "feed_forward_length";
constexpr const char* kPattern = "attention.sliding_window_pattern";
constexpr const char* kSharedLayers = "attention.shared_kv_layers";
constexpr const char* kLayerInput = "embedding_length_per_layer_input";
constexpr const char* kSparsity = "activation_sparsity_scale";
constexpr const char* kTurned = "rope_freqs.weight";

/// Keys of the config.json, and of the file's metadata.
constexpr const char* kGemma4Keys[][2] = {{"hidden_size", "embedding_length"},
                                          {"intermediate_size", kMlp},
                                          {"num_hidden_layers", "block_count"},
                                          {"num_attention_heads", "attention.head_count"},
                                          {"num_key_value_heads", kKvHeads},
                                          {"per_layer_config", kKvHeads},
                                          {"max_position_embeddings", "context_length"},
                                          {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
                                          {"rope_parameters", "rope.freq_base"},
                                          {"sliding_window", "attention.sliding_window"},
                                          {"layer_types", kPattern},
                                          {"final_logit_softcapping", "final_logit_softcapping"},
                                          {"num_kv_shared_layers", kSharedLayers},
                                          {"hidden_size_per_layer_input", kLayerInput},
                                          {"num_experts", "expert_count"},
                                          {"top_k_experts", "expert_used_count"},
                                          {"moe_intermediate_size", "expert_feed_forward_length"},
                                          {"altup_active_idx", "altup.active_idx"},
                                          {"altup_num_inputs", "altup.num_inputs"},
                                          {"activation_sparsity_z", kSparsity}};

/// For each layer whether it sees a window only.
std::vector<int64_t> sliding_layers(const GgufKeys& keys) {
  const auto& sliding = keys.metadata().integers(keys.key(kPattern));
  if (std::ssize(sliding) != keys.layers()) {
    keys.fail(kPattern, fmt::format("has {} entries for {} layers", sliding.size(), keys.layers()));
  }
  return sliding;
}

void require_same(const GgufKeys& keys, const char* name, const char* other) {
  const int64_t wanted = keys.integer(other);
  if (const int64_t found = keys.integer(name, wanted); found != wanted) {
    keys.fail(name, fmt::format("is {}, but '{}' is {}; only the same number is supported", found,
                                keys.key(other), wanted));
  }
}

void refuse_unsupported(const GgufKeys& keys) {
  require_same(keys, "attention.value_length", kKeyLength);
  require_same(keys, "rope.dimension_count", kKeyLength);
  const int64_t shared = keys.integer(kSharedLayers, 0);
  const bool all_may = keys.architecture() == kAssistantArchitecture;
  if (shared < 0 || shared > keys.layers() || (shared == keys.layers() && !all_may)) {
    keys.fail(kSharedLayers, fmt::format("is {} of {} layers", shared, keys.layers()));
  }
  if (!keys.metadata().boolean(keys.key("attention.causal"), true)) {
    keys.fail("attention.causal", "is false: encoders are not supported");
  }
  const std::string scaling = keys.metadata().text(keys.key("rope.scaling.type"), "none");
  if (scaling != "none") {
    keys.fail("rope.scaling.type",
              fmt::format("is '{}', which is not supported in this architecture", scaling));
  }
}

json mlp_sizes(const GgufKeys& keys) {
  const auto sizes = keys.in_layers(kMlp);
  const bool same =
      std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size == sizes.front(); });
  return same ? json(sizes.front()) : json(sizes);
}

/// What both architectures have.
json common(const GgufKeys& keys, const char* model_type) {
  refuse_unsupported(keys);
  json types = json::array();
  for (const int64_t sliding : sliding_layers(keys)) {
    types.push_back(sliding != 0 ? "sliding_attention" : "full_attention");
  }
  json config = {{"model_type", model_type},
                 {"vocab_size", keys.vocabulary()},
                 {"hidden_size", keys.integer("embedding_length")},
                 {"intermediate_size", mlp_sizes(keys)},
                 {"num_hidden_layers", keys.layers()},
                 {"num_attention_heads", keys.heads()},
                 {"max_position_embeddings", keys.integer("context_length")},
                 {"rms_norm_eps", keys.decimal("attention.layer_norm_rms_epsilon")},
                 {"hidden_activation", "gelu_pytorch_tanh"},
                 {"layer_types", std::move(types)},
                 {"sliding_window", keys.integer("attention.sliding_window")},
                 {"num_kv_shared_layers", keys.integer(kSharedLayers, 0)},
                 {"tie_word_embeddings", keys.file().find("output.weight") == nullptr},
                 {"eos_token_id", keys.end_ids()},
                 {"bos_token_id", keys.bos_id()}};
  const char* cap = "final_logit_softcapping";
  config[cap] = keys.has(cap) ? json(keys.decimal(cap)) : json();
  const int64_t layer_input = keys.integer(kLayerInput, 0);
  config["hidden_size_per_layer_input"] = layer_input;
  if (layer_input > 0) {
    config["vocab_size_per_layer_input"] = keys.matrix_rows("per_layer_token_embd.weight");
  }
  return config;
}

json rope(const GgufKeys& keys, const char* base) {
  (void)keys.positive(base);  // an error of the config would name no key of the file
  return {{"rope_type", "default"}, {"rope_theta", keys.decimal(base)}};
}

/// The part of a full layer's head that is turned: rope_freqs divides the frequencies of the first
/// pairs by 1, those of the others by 1e30. Without it all are turned.
double turned_part(const GgufKeys& keys) {
  const TensorEntry* entry = keys.file().find(kTurned);
  if (entry == nullptr) {
    return 1.0;
  }
  const std::string& where = keys.metadata().where();
  const int64_t pairs = keys.integer(kKeyLength) / 2;
  if (entry->dtype != DType::kF32 || pairs < 1 || entry->shape != std::vector<int64_t>{pairs}) {
    throw WeightsError(
        fmt::format("{}: tensor '{}' should hold {} values of type F32.", where, kTurned, pairs));
  }
  constexpr float kNeverTurned = 1e20F;
  std::vector<float> values(static_cast<size_t>(pairs));
  std::memcpy(values.data(), entry->bytes.data(), entry->bytes.size());
  const auto end = std::find_if(values.begin(), values.end(), [](float v) { return v != 1.0F; });
  const auto other =
      std::find_if_not(end, values.end(), [](float value) { return value >= kNeverTurned; });
  if (other != values.end()) {
    throw WeightsError(
        fmt::format("{}: tensor '{}' holds {}; only 1 for the first pairs of a head "
                    "and 1e30 for the others are supported.",
                    where, kTurned, *other));
  }
  const auto turned = static_cast<double>(end - values.begin());
  double part = turned / static_cast<double>(pairs);
  while (std::floor(part * static_cast<double>(pairs)) < turned) {
    part = std::nextafter(part, 2.0);  // it is multiplied and rounded down
  }
  return part;
}

/// The heads of every layer.
void add_heads(const GgufKeys& keys, json& config) {
  const auto sliding = sliding_layers(keys);
  const auto kv_heads = keys.in_layers(kKvHeads);
  const auto first = std::find_if(sliding.begin(), sliding.end(), [](int64_t v) { return v != 0; });
  const bool any_sliding = first != sliding.end();
  const int64_t usual_heads =
      kv_heads.at(any_sliding ? static_cast<size_t>(first - sliding.begin()) : 0);
  const int64_t full_dim = keys.integer(kKeyLength);
  const int64_t usual_dim = any_sliding ? keys.integer(kSlidingKeyLength) : full_dim;
  if (any_sliding) {
    require_same(keys, "attention.value_length_swa", kSlidingKeyLength);
    require_same(keys, "rope.dimension_count_swa", kSlidingKeyLength);
  }
  config["num_key_value_heads"] = usual_heads;
  config["head_dim"] = usual_dim;
  config["global_head_dim"] = full_dim;
  json others = json::object();
  for (size_t layer = 0; layer < sliding.size(); ++layer) {
    const int64_t dim = sliding[layer] != 0 ? usual_dim : full_dim;
    if (dim != usual_dim || kv_heads[layer] != usual_heads) {
      others[std::to_string(layer)] = {{"head_dim", dim}, {"num_key_value_heads", kv_heads[layer]}};
    }
  }
  if (!others.empty()) {
    config["per_layer_config"] = std::move(others);
  }
}

/// The layers that have keys of their own and no values.
void add_raw_values(const GgufKeys& keys, json& config) {
  const auto sliding = sliding_layers(keys);
  const int64_t own = keys.layers() - keys.integer(kSharedLayers, 0);
  json raw = json::array();
  bool as_usual = true;
  for (int64_t layer = 0; layer < own; ++layer) {
    const bool has_values =
        keys.file().find(fmt::format("blk.{}.attn_v.weight", layer)) != nullptr ||
        keys.file().find(fmt::format("blk.{}.attn_qkv.weight", layer)) != nullptr;
    const bool full = sliding[static_cast<size_t>(layer)] == 0;
    as_usual = as_usual && full != has_values;
    if (!has_values) {
      raw.push_back(layer);
    }
  }
  config["attention_k_eq_v"] = !raw.empty() && as_usual;
  if (!raw.empty() && !as_usual) {
    config["raw_value_layers"] = std::move(raw);
  }
}

void add_experts(const GgufKeys& keys, json& config) {
  const int64_t experts = keys.integer("expert_count", 0);
  config["enable_moe_block"] = experts > 0;
  if (experts > 0) {
    config["num_experts"] = experts;
    config["top_k_experts"] = keys.integer("expert_used_count");
    config["moe_intermediate_size"] = keys.integer("expert_feed_forward_length");
  }
}

json sparsity(const GgufKeys& keys) {
  const auto found = keys.metadata().values().find(keys.key(kSparsity));
  const auto* all = found == keys.metadata().values().end()
                        ? nullptr
                        : std::get_if<std::vector<float>>(&found->second);
  if (all == nullptr || std::ssize(*all) != keys.layers()) {
    keys.fail(kSparsity,
              fmt::format("should be a list of numbers, one for each of {} layers", keys.layers()));
  }
  json list = json::array();
  for (const float z : *all) {
    if (std::isnan(z) || (std::isinf(z) && z > 0.0F)) {
      keys.fail(kSparsity, fmt::format("has {} as its entry {}; it should be a number, or "
                                       "-infinity for a layer without",
                                       z, list.size()));
    }
    list.push_back(std::isinf(z) ? json() : json(static_cast<double>(z)));
  }
  return list;
}

}  // namespace

std::string gemma4_config_json(const GgufKeys& keys) {
  json config = common(keys, "gemma4_text");
  json full = rope(keys, "rope.freq_base");
  full["rope_type"] = "proportional";
  full["partial_rotary_factor"] = turned_part(keys);
  config["rope_parameters"] = {{"full_attention", std::move(full)},
                               {"sliding_attention", rope(keys, "rope.freq_base_swa")}};
  config["use_double_wide_mlp"] = false;  // intermediate_size says it for each layer
  add_heads(keys, config);
  add_raw_values(keys, config);
  add_experts(keys, config);
  return config.dump();
}

std::string gemma3n_config_json(const GgufKeys& keys) {
  json config = common(keys, "gemma3n_text");
  if (keys.file().find(kTurned) != nullptr) {
    throw WeightsError(
        fmt::format("{}: tensor '{}' scales the rotations, which is not supported "
                    "in Gemma 3n.",
                    keys.metadata().where(), kTurned));
  }
  config["rope_parameters"] = {{"full_attention", rope(keys, "rope.freq_base")},
                               {"sliding_attention", rope(keys, "rope.freq_base_swa")}};
  config["num_key_value_heads"] = keys.same_in_layers(kKvHeads);
  config["head_dim"] = keys.integer(kKeyLength);
  config["altup_active_idx"] = keys.integer("altup.active_idx");
  config["altup_num_inputs"] = keys.integer("altup.num_inputs");
  config["altup_correct_scale"] = true;
  config["laurel_rank"] = keys.matrix_rows("blk.0.laurel_l.weight");
  config["activation_sparsity_z"] = sparsity(keys);
  return config.dump();
}

KeyNames gemma4_key_names(const GgufKeys& keys) {
  KeyNames names = {
      {"vocab_size", "token_embd.weight"},
      {"vocab_size_per_layer_input", "per_layer_token_embd.weight"},
      {"laurel_rank", "blk.0.laurel_l.weight"},
      {"backbone_hidden_size", keys.key("embedding_length_out")},
      {"head_dim", keys.key(keys.architecture() == "gemma3n" ? kKeyLength : kSlidingKeyLength)},
      {"global_head_dim", keys.key(kKeyLength)}};
  for (const auto& [hub, own] : kGemma4Keys) {
    names.emplace(hub, keys.key(own));
  }
  return names;
}

}  // namespace specdec
