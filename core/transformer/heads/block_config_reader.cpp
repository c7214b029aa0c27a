#include "core/transformer/heads/block_config_reader.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/transformer/heads/head_layer_config.h"
#include "core/transformer/layer_types.h"
#include "core/transformer/rope_config.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr int64_t kMostRows = 1024;

/// Finds the object that holds a key of the method.
using MethodKeys = std::function<JsonKeys(const char* key)>;

/// The object that holds a key of the method: dflash_config where that has it, else the top.
JsonKeys zlab_keys(const JsonKeys& keys, const char* key) {
  const bool nested = keys.has("dflash_config") && keys.object("dflash_config").has(key);
  return nested ? keys.object("dflash_config") : keys;
}

BlockMethod read_method(const JsonKeys& keys) {
  const std::string found = head_kind(keys);
  if (const auto method = find_block_method(found)) {
    return *method;
  }
  keys.fail("architectures",
            found.empty()
                ? "does not name a head that drafts blocks (DFlashDraftModel)"
                : fmt::format("says that this is a head of type {0}; use drafter type {0}", found));
}

/// What would change the result and is not computed here.
void refuse_other_methods(const JsonKeys& keys) {
  const auto refuse = [](const JsonKeys& object, const char* key, const char* problem) {
    if (object.has(key)) {
      object.fail(key, problem);
    }
  };
  if (!zlab_keys(keys, "is_neox_style").boolean("is_neox_style", true)) {
    keys.fail("is_neox_style", "is false; heads are rotated in halves");
  }
  for (const char* key : {"attention_sink_bias", "mask_embedding", "use_swa", "attention_bias"}) {
    const JsonKeys object = zlab_keys(keys, key);
    if (object.boolean(key, false)) {
      object.fail(key, "is true, which is not supported");
    }
  }
  refuse(zlab_keys(keys, "causal"), "causal", "is not supported; z-lab's key is is_causal");
  refuse(zlab_keys(keys, "logit_scale"), "logit_scale",
         "is not supported; z-lab's key is output_multiplier");
  refuse(keys, "draft_vocab_size", "is not supported: the target's own head gives the logits");
}

/// A window is only what transformers reads as one: `use_sliding_window` false drops it.
std::vector<bool> read_sliding(const JsonKeys& keys, int64_t layers) {
  const bool used = keys.boolean("use_sliding_window", false);
  if (!keys.has("layer_types")) {
    const int64_t full = used ? keys.integer("max_window_layers", 28) : layers;
    std::vector<bool> sliding;
    for (int64_t layer = 0; layer < layers; ++layer) {
      sliding.push_back(layer >= full);
    }
    return sliding;
  }
  const std::vector<bool> sliding = read_layer_types(keys, layers);
  if (!used && std::find(sliding.begin(), sliding.end(), true) != sliding.end()) {
    keys.fail("use_sliding_window",
              "is not true, with which transformers drops the window of the sliding layers in "
              "layer_types; say true, or make them full_attention");
  }
  return sliding;
}

/// A layer of Qwen 3's kind.
LayerPlan read_qwen3_layer(const JsonKeys& keys, int64_t hidden_size) {
  LayerPlan plan;
  read_head_layer_sizes(keys, hidden_size, plan);
  plan.query_scale = 1.0 / std::sqrt(static_cast<double>(plan.head_dim));
  plan.qk_norm = true;
  plan.activation = read_head_activation(keys, Activation::kSilu);
  const bool nested =
      keys.has("rope_parameters") && keys.object("rope_parameters").has("rope_theta");
  const bool scaled = keys.has("rope_scaling") && keys.object("rope_scaling").has("rope_theta");
  if (!nested && !scaled && !keys.has("rope_theta")) {
    keys.fail("rope_theta", "is missing; engines differ in what it is then (1e4, 1e6)");
  }
  plan.rope = read_llama_rope(keys, plan.head_dim, keys.positive("max_position_embeddings", 32768));
  return plan;
}

void read_qwen3_layers(const JsonKeys& keys, BlockHeadConfig& config) {
  const int64_t layers = read_layer_count(keys);
  const LayerPlan plan = read_qwen3_layer(keys, config.hidden_size);
  for (const bool slides : read_sliding(keys, layers)) {
    config.plan.push_back(plan);
    config.plan.back().window = slides ? keys.positive("sliding_window") : 0;
    config.causal.push_back(slides);
  }
}

/// DeepSpec's layers of Gemma 4, which all see everything.
void read_gemma4_layers(const JsonKeys& keys, BlockHeadConfig& config) {
  const int64_t layers = read_layer_count(keys);
  const std::vector<bool> sliding = read_layer_types(keys, layers);
  if (std::find(sliding.begin(), sliding.end(), true) != sliding.end()) {
    keys.fail("layer_types", "names a sliding layer; DeepSpec's layers of Gemma 4 see everything");
  }
  LayerPlan plan;
  read_gemma4_head_layer(keys, config.hidden_size, plan);
  config.plan.assign(static_cast<size_t>(layers), plan);
}

std::vector<int64_t> read_target_layers(const JsonKeys& object, const char* key) {
  const json& ids = object.at(key);
  std::vector<int64_t> layers;
  for (const json& id : ids.is_array() ? ids : json::array()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > 1024) {
      object.fail(key, id == -1 ? "holds -1, the embedding's output, which is not captured"
                                : fmt::format("holds {}, which is no layer", describe_json(id)));
    }
    layers.push_back(id.get<int64_t>());
  }
  if (layers.empty()) {
    object.fail(key, "should be a list of layers");
  }
  return layers;
}

void read_block(const MethodKeys& of, int64_t default_size, BlockHeadConfig& config) {
  const JsonKeys block = of("block_size");
  config.block_size = block.positive("block_size", default_size);
  if (config.block_size < 2 || config.block_size > kMostRows) {
    block.fail("block_size", fmt::format("is {}; 2 to {}", config.block_size, kMostRows));
  }
  const JsonKeys mask = of("mask_token_id");
  const int64_t token = mask.integer("mask_token_id");
  if (token < 0 || token >= config.vocab_size) {
    mask.fail("mask_token_id",
              fmt::format("is {}, outside the vocabulary of {}", token, config.vocab_size));
  }
  config.mask_token = static_cast<Token>(token);
}

/// Slots of a block that drafts from the newest token's row on, or from the row after it.
void set_slots(bool from_anchor, BlockHeadConfig& config) {
  config.first_slot = from_anchor ? 0 : 1;
  config.drafts = from_anchor ? config.block_size : config.block_size - 1;
}

/// Defaults as speculators'; the other formats write all keys.
void read_markov(const MethodKeys& of, int64_t default_rank, MarkovConfig& markov) {
  const JsonKeys rank = of("markov_rank");
  const bool none = rank.has("markov_rank") && rank.integer("markov_rank") == 0;
  markov.rank = none ? 0 : rank.positive("markov_rank", default_rank);
  const std::string gate = of("markov_head_type").text("markov_head_type", "vanilla");
  bool known = false;
  for (const MarkovGate one : {MarkovGate::kVanilla, MarkovGate::kGated, MarkovGate::kRnn}) {
    if (gate == markov_gate_name(one)) {
      markov.gate = one;
      known = true;
    }
  }
  if (!known) {
    of("markov_head_type")
        .fail("markov_head_type", fmt::format("is '{}'; supported: vanilla, gated, rnn", gate));
  }
  const JsonKeys confidence = of("enable_confidence_head");
  markov.confidence = confidence.boolean("enable_confidence_head", !none);
  markov.confidence_with_markov =
      markov.confidence &&
      of("confidence_head_with_markov").boolean("confidence_head_with_markov", true);
  if (none && markov.confidence) {
    confidence.fail("enable_confidence_head",
                    "is true beside a markov_rank of 0, which is not supported");
  }
}

void read_domino(const MethodKeys& of, BlockHeadConfig& config) {
  config.domino.rank = of("emb_dim").positive("emb_dim");
  config.domino.state_size = of("gru_hidden_dim").positive("gru_hidden_dim");
  const JsonKeys plain = of("pure_draft_prefix_len");
  config.domino.plain_drafts = plain.integer("pure_draft_prefix_len", 0);
  if (config.domino.plain_drafts < 0 || config.domino.plain_drafts > config.drafts) {
    plain.fail("pure_draft_prefix_len", fmt::format("is {}; 0 to {}, the drafts of a block",
                                                    config.domino.plain_drafts, config.drafts));
  }
  const JsonKeys shift = of("shift_label");
  if (!shift.has("shift_label")) {
    shift.fail("shift_label",
               "is missing; true: a row drafts the token after its own, false: its own");
  }
  config.first_slot = shift.boolean("shift_label", false) ? 0 : 1;
}

void read_dflash2(const MethodKeys& of, BlockHeadConfig& config) {
  DFlash2Config& sizes = config.dflash2;
  sizes.rank = of("selector_rank").positive("selector_rank", 256);
  sizes.candidates = of("selector_top_k").positive("selector_top_k", 16);
  sizes.kernel_size = of("conv_kernel_size").positive("conv_kernel_size", 2);
  const JsonKeys group = of("conv_group_size");
  sizes.group_size = group.positive("conv_group_size", 16);
  if (config.hidden_size % sizes.group_size != 0) {
    group.fail("conv_group_size", fmt::format("is {}, which does not divide the hidden size of {}",
                                              sizes.group_size, config.hidden_size));
  }
  if (sizes.kernel_size > config.block_size) {
    of("conv_kernel_size")
        .fail("conv_kernel_size",
              fmt::format("is {} in a block of {} rows", sizes.kernel_size, config.block_size));
  }
  if (sizes.candidates > config.vocab_size) {
    of("selector_top_k")
        .fail("selector_top_k",
              fmt::format("is {}, more than vocab_size ({})", sizes.candidates, config.vocab_size));
  }
}

void read_correction(const MethodKeys& of, BlockHeadConfig& config) {
  switch (config.method) {
    case BlockMethod::kDFlash:
      return;
    case BlockMethod::kDSpark:
      return read_markov(of, 256, config.markov);
    case BlockMethod::kDomino:
      return read_domino(of, config);
    case BlockMethod::kDFlash2:
      return read_dflash2(of, config);
  }
}

void read_sizes(const JsonKeys& keys, BlockHeadConfig& config) {
  config.hidden_size = keys.positive("hidden_size");
  config.vocab_size = config.draft_vocab_size = keys.positive("vocab_size");
  config.rms_norm_eps = keys.rms_norm_eps();
}

void read_zlab(const JsonKeys& keys, BlockHeadConfig& config) {
  const MethodKeys of = [&](const char* key) { return zlab_keys(keys, key); };
  refuse_other_methods(keys);
  read_sizes(keys, config);
  read_qwen3_layers(keys, config);
  const JsonKeys causality = of("is_causal");
  for (size_t layer = 0; layer < config.causal.size(); ++layer) {
    config.causal[layer] = causality.boolean("is_causal", config.causal[layer]);
  }
  read_block(of, 16, config);
  set_slots(false, config);
  read_correction(of, config);
  const auto number = [&](const char* key) { return of(key).positive_number(key, 1.0); };
  config.embedding_scale = number("input_embedding_scale");
  config.output_multiplier = number("output_multiplier");
  config.soft_cap = of("final_logit_softcapping").soft_cap("final_logit_softcapping", 0.0);
  if (const JsonKeys layers = of(config.layers_key); layers.has(config.layers_key)) {
    config.capture_layers = read_target_layers(layers, config.layers_key);
  }
}

bool is_deepspec(const JsonKeys& keys) {
  const std::string names = keys.has("architectures") ? keys.at("architectures").dump() : "";
  return names.find("DSparkModel") != std::string::npos;
}

void read_deepspec(const JsonKeys& keys, BlockHeadConfig& config) {
  const MethodKeys of = [&](const char*) { return keys; };
  read_sizes(keys, config);
  config.own_embedding = config.own_head = true;
  const std::string type = keys.text("model_type", "");
  if (type == "gemma4_text" || type == "gemma4_unified_text") {
    read_gemma4_layers(keys, config);
    config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  } else if (type == "qwen3") {
    read_qwen3_layers(keys, config);
  } else {
    keys.fail("model_type", fmt::format("is '{}'; DeepSpec's heads have layers of qwen3, "
                                        "gemma4_text or gemma4_unified_text",
                                        type));
  }
  config.causal.assign(config.plan.size(), false);
  read_block(of, 16, config);
  set_slots(true, config);
  read_correction(of, config);
  config.soft_cap = keys.soft_cap("final_logit_softcapping", 0.0);
  config.capture_layers = read_target_layers(keys, config.layers_key);
}

void read_speculators_layers(const JsonKeys& keys, const JsonKeys& layers,
                             BlockHeadConfig& config) {
  const std::string type = layers.text("model_type", "qwen3");
  if (type != "qwen3") {
    layers.fail("model_type", fmt::format("is '{}'; layers of a block drafter are qwen3", type));
  }
  refuse_layer_parts(layers);
  read_qwen3_layers(layers, config);
  config.window_from_anchor = true;
  if (keys.boolean("sliding_window_non_causal", config.method == BlockMethod::kDFlash2)) {
    config.causal.assign(config.causal.size(), false);
  }
}

/// speculators names layers by their inputs: 0 is the embedding.
void read_speculators_taps(const JsonKeys& keys, BlockHeadConfig& config) {
  config.layers_key = "aux_hidden_state_layer_ids";
  config.last_output_is_normed = false;
  for (const int64_t input : read_target_layers(keys, config.layers_key)) {
    if (input == 0) {
      keys.fail(config.layers_key, "holds 0, the embedding's output, which is not captured");
    }
    config.capture_layers.push_back(input - 1);
  }
}

void read_speculators(const JsonKeys& keys, BlockHeadConfig& config) {
  const MethodKeys of = [&](const char*) { return keys; };
  const JsonKeys layers = keys.object("transformer_layer_config");
  read_sizes(layers, config);
  if (keys.has("target_hidden_size") && keys.integer("target_hidden_size") != config.hidden_size) {
    keys.fail("target_hidden_size",
              fmt::format("is {}, and the head's hidden_size is {}, which is "
                          "not supported",
                          keys.integer("target_hidden_size"), config.hidden_size));
  }
  config.draft_vocab_size = keys.positive("draft_vocab_size", 32000);
  if (config.draft_vocab_size > config.vocab_size) {
    keys.fail("draft_vocab_size", fmt::format("is {}, more than vocab_size ({})",
                                              config.draft_vocab_size, config.vocab_size));
  }
  config.own_head = config.draft_vocab_size < config.vocab_size;
  if (config.own_head && config.method == BlockMethod::kDFlash2) {
    keys.fail("draft_vocab_size", "is not vocab_size; DFlash2 drafts all tokens");
  }
  read_speculators_layers(keys, layers, config);
  read_block(of, 8, config);
  set_slots(keys.boolean("sample_from_anchor", config.method == BlockMethod::kDSpark), config);
  read_correction(of, config);
  read_speculators_taps(keys, config);
}

}  // namespace

BlockHeadConfig read_block_head_config(const JsonKeys& keys) {
  BlockHeadConfig config;
  config.method = read_method(keys);
  if (keys.has("speculators_model_type")) {
    read_speculators(keys, config);
  } else if (is_deepspec(keys)) {
    read_deepspec(keys, config);
  } else {
    read_zlab(keys, config);
  }
  config.trained_for = read_head_target(keys);
  if (keys.has("num_target_layers")) {
    config.trained_for.num_layers = keys.positive("num_target_layers");
  }
  return config;
}

}  // namespace specdec
