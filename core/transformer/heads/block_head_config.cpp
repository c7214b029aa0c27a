#include "core/transformer/heads/block_head_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "core/transformer/heads/block_config_reader.h"
#include "core/transformer/rope_config.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kTargetLayers = "target_layer_ids";

/// What the method adds to dflash_config.
json method_json(const BlockHeadConfig& config) {
  switch (config.method) {
    case BlockMethod::kDFlash:
      return json::object();
    case BlockMethod::kDSpark:
      return {{"projector_type", "dspark"},
              {"markov_rank", config.markov.rank},
              {"markov_head_type", markov_gate_name(config.markov.gate)},
              {"enable_confidence_head", config.markov.confidence},
              {"confidence_head_with_markov", config.markov.confidence_with_markov}};
    case BlockMethod::kDomino:
      return {{"projector_type", "domino"},
              {"emb_dim", config.domino.rank},
              {"gru_hidden_dim", config.domino.state_size},
              {"pure_draft_prefix_len", config.domino.plain_drafts},
              {"shift_label", config.first_slot == 0}};
    case BlockMethod::kDFlash2:
      return {{"projector_type", "dflash2"},
              {"conv_kernel_size", config.dflash2.kernel_size},
              {"conv_group_size", config.dflash2.group_size},
              {"selector_rank", config.dflash2.rank},
              {"selector_top_k", config.dflash2.candidates}};
  }
  return json::object();
}

/// The class that publishes a method's heads.
const char* architecture_of(BlockMethod method) {
  switch (method) {
    case BlockMethod::kDFlash:
      return "DFlashDraftModel";
    case BlockMethod::kDSpark:
      return "DSparkDraftModel";
    case BlockMethod::kDomino:
      return "DominoDraftModel";
    case BlockMethod::kDFlash2:
      return "DFlash2DraftModel";
  }
  return "";
}

/// Whether z-lab's and SpecForge's format can say what a config holds.
bool is_in_zlab_format(const BlockHeadConfig& config) {
  const bool from_row = config.method == BlockMethod::kDomino || config.first_slot == 1;
  return !config.own_embedding && !config.own_head && !config.window_from_anchor && from_row &&
         config.plan.front().values == ValueKind::kProjected && !config.plan.front().post_norms;
}

}  // namespace

const char* markov_gate_name(MarkovGate gate) {
  switch (gate) {
    case MarkovGate::kVanilla:
      return "vanilla";
    case MarkovGate::kGated:
      return "gated";
    case MarkovGate::kRnn:
      return "rnn";
  }
  return "";
}

const char* block_method_name(BlockMethod method) {
  switch (method) {
    case BlockMethod::kDFlash:
      return "dflash";
    case BlockMethod::kDSpark:
      return "dspark";
    case BlockMethod::kDomino:
      return "domino";
    case BlockMethod::kDFlash2:
      return "dflash2";
  }
  return "";
}

std::optional<BlockMethod> find_block_method(const std::string& name) {
  for (const BlockMethod method :
       {BlockMethod::kDFlash, BlockMethod::kDSpark, BlockMethod::kDomino, BlockMethod::kDFlash2}) {
    if (name == block_method_name(method)) {
      return method;
    }
  }
  return std::nullopt;
}

BlockHeadConfig load_block_head_config(const std::filesystem::path& folder) {
  const std::string where = (folder / "config.json").string();
  const json parsed = parse_json_object(read_head_config(folder), where);
  return read_block_head_config(JsonKeys(parsed, where));
}

std::string block_head_config_json(const BlockHeadConfig& config) {
  SPECDEC_CHECK(is_in_zlab_format(config), "z-lab's format has no word for this {} head",
                block_method_name(config.method));
  const LayerPlan& plan = config.plan.front();
  json out = {{"architectures", {architecture_of(config.method)}},
              {"model_type", "qwen3"},
              {"block_size", config.block_size},
              {"dflash_config", method_json(config)},
              {"head_dim", plan.head_dim},
              {"hidden_act", plan.activation == Activation::kSilu ? "silu" : "gelu_pytorch_tanh"},
              {"hidden_size", config.hidden_size},
              {"input_embedding_scale", config.embedding_scale},
              {"intermediate_size", plan.intermediate_size},
              {"num_attention_heads", plan.heads},
              {"num_hidden_layers", config.plan.size()},
              {"num_key_value_heads", plan.kv_heads},
              {"output_multiplier", config.output_multiplier},
              {"rms_norm_eps", config.rms_norm_eps},
              {"rope_parameters", rope_json(plan.rope)},
              {"use_sliding_window", true},
              {"vocab_size", config.vocab_size}};
  out["dflash_config"]["mask_token_id"] = config.mask_token;
  for (const LayerPlan& layer : config.plan) {
    out["layer_types"].push_back(layer.window > 0 ? "sliding_attention" : "full_attention");
    if (layer.window > 0) {
      out["sliding_window"] = layer.window;
    }
  }
  for (size_t layer = 0; layer < config.plan.size(); ++layer) {
    if (config.causal[layer] != (config.plan[layer].window > 0)) {
      out["is_causal"] = bool{config.causal[layer]};
    }
  }
  if (config.soft_cap > 0.0) {
    out["final_logit_softcapping"] = config.soft_cap;
  }
  if (!config.capture_layers.empty()) {
    out["dflash_config"][kTargetLayers] = config.capture_layers;
  }
  if (config.trained_for.vocab_size > 0) {
    out["trained_for"] = head_target_json(config.trained_for);
  }
  return out.dump(2) + "\n";
}

std::vector<int64_t> block_capture_layers(const BlockHeadConfig& config,
                                          const TransformerConfig& target) {
  if (!config.capture_layers.empty()) {
    return config.capture_layers;
  }
  const int64_t taps = std::ssize(config.plan);
  if (taps == 1) {
    return {target.num_layers / 2};
  }
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < taps; ++i) {  // rounded as Python rounds, halves to even
    const auto span = static_cast<double>(target.num_layers - 4);
    layers.push_back(static_cast<int64_t>(
        std::nearbyint(1.0 + static_cast<double>(i) * span / static_cast<double>(taps - 1))));
  }
  return layers;
}

void check_block_head_config(const BlockHeadConfig& config, const TransformerConfig& target,
                             const std::filesystem::path& folder) {
  HeadTarget shapes = config.trained_for;
  shapes.hidden_size = config.hidden_size;  // published heads do not say more
  shapes.vocab_size = config.vocab_size;
  check_head_shapes(shapes, target, folder);
  const std::vector<int64_t> layers = block_capture_layers(config, target);
  const char* from =
      config.capture_layers.empty() ? " (its default, since the key is missing)" : "";
  const int64_t last = target.num_layers - (config.last_output_is_normed ? 2 : 1);
  for (const int64_t layer : layers) {
    if (layer < 0 || layer > last) {
      throw WeightsError(fmt::format(
          "{}: {}{} in its config.json names the output of layer {}; a head is fed those of a "
          "target's layers{}, which here are layers 0 to {}. Use the head that was trained for "
          "this target.",
          folder.string(), config.layers_key, from, layer,
          config.last_output_is_normed ? " but the last" : "", last));
    }
  }
  if (std::set<int64_t>(layers.begin(), layers.end()).size() != layers.size()) {
    throw WeightsError(
        fmt::format("{}: {}{} in its config.json names a layer twice; write the "
                    "layers that the head was trained with into it.",
                    folder.string(), config.layers_key, from));
  }
}

BlockHeadConfig make_block_head_config(const TransformerInfo& target, int64_t layers,
                                       int64_t block_size) {
  const TransformerConfig& model = target.config;
  const LayerPlan& like = target.plan.front();
  BlockHeadConfig config;
  config.hidden_size = model.hidden_size;
  config.vocab_size = config.draft_vocab_size = model.vocab_size;
  config.rms_norm_eps = model.rms_norm_eps;
  LayerPlan plan;
  plan.heads = like.heads;
  plan.kv_heads = like.kv_heads;
  plan.head_dim = like.head_dim;
  plan.intermediate_size = like.intermediate_size;
  plan.query_scale = 1.0 / std::sqrt(static_cast<double>(like.head_dim));
  plan.rope.theta = 1e6;
  plan.qk_norm = true;
  plan.activation = Activation::kSilu;
  config.plan.assign(static_cast<size_t>(layers), plan);
  config.causal.assign(static_cast<size_t>(layers), false);
  config.block_size = block_size;
  config.drafts = block_size - 1;
  const int64_t last = std::max<int64_t>(0, model.num_layers - 2);
  const std::set<int64_t> taps = {0, last / 2, last};
  config.capture_layers.assign(taps.begin(), taps.end());
  config.trained_for = head_target(target);
  return config;
}

}  // namespace specdec
