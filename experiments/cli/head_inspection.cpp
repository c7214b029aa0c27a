#include "experiments/cli/head_inspection.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/families/gemma/assistant.h"
#include "core/transformer/heads/block_head.h"
#include "core/transformer/heads/eagle_head.h"
#include "core/transformer/heads/head_files.h"
#include "core/transformer/heads/medusa_head.h"

namespace specdec {
namespace {

constexpr const char* kAssistant = "gemma4_assistant";

nlohmann::json layers_json(const std::vector<LayerPlan>& plan) {
  auto layers = nlohmann::json::array();
  for (const LayerPlan& layer : plan) {
    layers.push_back(layer_json(layer));
  }
  return layers;
}

nlohmann::json target_json(const HeadTarget& target) {
  nlohmann::json json = {{"hidden_size", target.hidden_size}, {"vocab_size", target.vocab_size}};
  if (target.num_layers > 0) {
    json["num_layers"] = target.num_layers;
  }
  if (!target.fingerprint.empty()) {
    json["weights"] = target.fingerprint;
  }
  for (const char* key : {"hidden_size", "vocab_size"}) {
    json[key] = json[key] == 0 ? nlohmann::json("any") : json[key];
  }
  return json;
}

/// The target of a head with this config: of a published one its sizes only.
template <class Config>
HeadTarget target_of(const Config& config) {
  HeadTarget target = config.trained_for;
  target.hidden_size = config.hidden_size;
  target.vocab_size = config.vocab_size;
  return target;
}

/// More layers than targets have, where a head does not say how many its target has.
constexpr int64_t kAnyLayers = 1024;

/// The target that a head fits, to check the head's tensors for; none where its sizes are not
/// known.
std::optional<TransformerInfo> fitting_target(const HeadTarget& fits) {
  if (fits.hidden_size == 0 || fits.vocab_size == 0) {
    return std::nullopt;
  }
  TransformerConfig config;
  config.hidden_size = fits.hidden_size;
  config.vocab_size = fits.vocab_size;
  config.num_layers = fits.num_layers > 0 ? fits.num_layers : kAnyLayers;
  return unloaded_target(config);
}

nlohmann::json eagle_json(const std::filesystem::path& folder, EagleVersion version) {
  const EagleConfig config = load_eagle_config(folder, version);
  const HeadTarget target = target_of(config);
  if (const auto fits = fitting_target(target)) {
    (void)load_eagle_head(folder, version, *fits);
  }
  nlohmann::json json = {{"num_layers", config.layers},
                         {"target", target_json(target)},
                         {"weights", weights_json(CheckpointTensors(folder))},
                         {"layers", nlohmann::json::array({layer_json(config.plan)})}};
  if (captures_streams(version)) {
    json["draft_vocab_size"] = config.draft_vocab_size;
    json["capture_layers"] = config.capture_layers.empty() ? nlohmann::json("by the target")
                                                           : nlohmann::json(config.capture_layers);
  }
  if (version == EagleVersion::kPEagle) {
    json["drafts"] = config.drafts;
    json["mask_token"] = config.mask_token;
  }
  return json;
}

nlohmann::json medusa_json(const std::filesystem::path& folder) {
  const MedusaConfig config = read_medusa_config(folder);
  const HeadTarget target = target_of(config);
  if (const auto fits = fitting_target(target)) {
    (void)load_medusa_head(folder, *fits);
  }
  return {{"num_heads", config.num_heads},
          {"num_layers", config.num_layers},
          {"share_lm_head", config.share_lm_head},
          {"target", target_json(target)},
          {"weights", weights_json(medusa_tensors(folder))}};
}

nlohmann::json block_head_json(const std::filesystem::path& folder) {
  const BlockHeadConfig config = load_block_head_config(folder);
  const HeadTarget target = target_of(config);
  if (const auto fits = fitting_target(target)) {
    (void)load_block_head(folder, *fits);
  }
  return {{"num_layers", config.plan.size()},
          {"block_size", config.block_size},
          {"drafts", config.drafts},
          {"draft_vocab_size", config.draft_vocab_size},
          {"mask_token", config.mask_token},
          {"capture_layers", config.capture_layers.empty() ? nlohmann::json("by the target")
                                                           : nlohmann::json(config.capture_layers)},
          {"target", target_json(target)},
          {"weights", weights_json(CheckpointTensors(folder))},
          {"layers", layers_json(config.plan)}};
}

nlohmann::json assistant_json(const std::filesystem::path& path) {
  const OpenAssistant open = open_assistant(path);
  const TransformerConfig& layers = open.config.layers.config;
  auto fits = fitting_target(open.config.trained_for).value();
  fits.plan = open.config.layers.plan;  // which has the geometry of the target's keys and values
  for (LayerPlan& layer : fits.plan) {
    layer.kv_source = -1;
  }
  (void)load_assistant(path, fits);
  nlohmann::json json = {{"num_layers", layers.num_layers},
                         {"hidden_size", layers.hidden_size},
                         {"target", target_json(open.config.trained_for)},
                         {"weights", weights_json(*open.tensors)},
                         {"layers", layers_json(open.config.layers.plan)}};
  if (open.config.clusters > 0) {
    json["clusters"] = open.config.clusters;
    json["chosen_clusters"] = open.config.chosen;
  }
  return json;
}

}  // namespace

/// What a training learns, unlike buffers: numbers of indices, what scales a layer or its
/// rotations, and scales of weights that are stored as integers.
static bool is_parameter(const TensorEntry& entry) {
  if (entry.dtype == DType::kI64 || entry.dtype == DType::kBool) {
    return false;
  }
  const auto ends_with = [&](const char* end) { return entry.name.ends_with(end); };
  return !ends_with("layer_scalar") && !ends_with("rotary_emb.inv_freq") && !ends_with(".scales") &&
         !ends_with("weight_scale") && !ends_with("weight_scale_inv");
}

nlohmann::json weights_json(const TensorFiles& tensors) {
  int64_t parameters = 0;
  int64_t bytes = 0;
  std::set<std::string> dtypes;
  for (const auto* entry : tensors.tensors()) {
    const int64_t values =
        std::accumulate(entry->shape.begin(), entry->shape.end(), int64_t{1}, std::multiplies<>());
    bytes += values / block_values(entry->dtype) * dtype_bytes(entry->dtype);
    parameters += is_parameter(*entry) ? values : 0;
    dtypes.insert(std::string(dtype_name(entry->dtype)));
  }
  return {{"tensors", tensors.tensors().size()},
          {"parameters", parameters},
          {"bytes", bytes},
          {"dtypes", dtypes}};
}

nlohmann::json layer_json(const LayerPlan& layer) {
  return {
      {"heads", layer.heads},
      {"kv_heads", layer.kv_heads},
      {"head_dim", layer.head_dim},
      {"intermediate_size", layer.intermediate_size},
      {"window", layer.window},
      {"query_scale", layer.query_scale},
      {"soft_cap", layer.soft_cap},
      {"rope_theta", layer.rope.theta},
      {"rope_factor", layer.rope.factor},
      {"rope_divisors", layer.rope.divisors},
      {"qkv_bias", layer.qkv_bias},
      {"output_bias", layer.output_bias},
      {"mlp_bias", layer.mlp_bias},
      {"qk_norm", layer.qk_norm},
      {"post_norms", layer.post_norms},
      {"rotated_pairs", layer.rope.rotated_pairs},
      {"kv_source", layer.kv_source},
      {"convolution_width", layer.recurrence.convolution_width},
      {"raw_key_values", layer.values == ValueKind::kRawKeys},
      {"value_norm", layer.value_norm},
      {"layer_scalar", layer.layer_scalar},
      {"per_layer_size", layer.per_layer_size},
      {"experts", layer.experts.count},
      {"chosen_experts", layer.experts.chosen},
      {"expert_size", layer.experts.intermediate_size},
      {"sparsity_cut", layer.sparsity_cut ? nlohmann::json(*layer.sparsity_cut) : nlohmann::json()},
      {"streams", layer.altup.streams},
      {"laurel_rank", layer.laurel_rank}};
}

std::string inspected_head(const std::filesystem::path& path) {
  return is_assistant(path) ? kAssistant : head_kind(path);
}

nlohmann::json inspect_head(const std::filesystem::path& path, const std::string& kind) {
  nlohmann::json json;
  if (kind == kAssistant) {
    json = assistant_json(path);
  } else if (find_block_method(kind)) {
    json = block_head_json(path);
  } else if (kind == "medusa") {
    json = medusa_json(path);
  } else if (const auto version = find_eagle_version(kind)) {
    json = eagle_json(path, *version);
  } else {
    throw WeightsError(fmt::format(
        "{}: holds a head of type '{}'; known: dflash, dflash2, domino, dspark, eagle, eagle3, "
        "gemma4_assistant, medusa, peagle",
        path.string(), kind));
  }
  json["folder"] = path.string();
  json["head"] = kind;
  return json;
}

}  // namespace specdec
