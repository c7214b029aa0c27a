#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/llama/config.h"
#include "core/families/llama/llama3_scaling.h"

namespace specdec {
namespace {

using nlohmann::json;

class LlamaConfigWriter {
 public:
  LlamaConfigWriter(const ModelDescription& model, const std::string& where)
      : model_(model), first_(model.plan.front()), where_(where) {}

  json write() const {
    const TransformerConfig& config = model_.config;
    json out = {{"architectures", json::array({class_name()})},
                {"attention_bias", first_.output_bias},
                {"eos_token_id", config.end_ids},
                {"head_dim", first_.head_dim},
                {"hidden_act", "silu"},
                {"hidden_size", config.hidden_size},
                {"intermediate_size", first_.intermediate_size},
                {"max_position_embeddings", config.max_position_embeddings},
                {"model_type", type()},
                {"num_attention_heads", first_.heads},
                {"num_hidden_layers", config.num_layers},
                {"num_key_value_heads", first_.kv_heads},
                {"rms_norm_eps", config.rms_norm_eps},
                {"rope_theta", first_.rope.theta},
                {"tie_word_embeddings", config.tie_word_embeddings},
                {"vocab_size", config.vocab_size}};
    out["bos_token_id"] = config.bos_id < 0 ? json() : json(config.bos_id);
    if (type() == "llama") {
      out["mlp_bias"] = first_.mlp_bias;
    }
    write_rope_scaling(out);
    write_windows(out);
    return out;
  }

 private:
  bool has_windows() const {
    return std::any_of(model_.plan.begin(), model_.plan.end(),
                       [](const LayerPlan& layer) { return layer.window > 0; });
  }
  /// GGUF's architecture `llama` is Mistral's too.
  std::string type() const {
    return model_.config.family == "llama" && has_windows() ? "mistral" : model_.config.family;
  }
  std::string class_name() const {
    const std::string name = type();
    return name == "llama"     ? "LlamaForCausalLM"
           : name == "mistral" ? "MistralForCausalLM"
           : name == "qwen2"   ? "Qwen2ForCausalLM"
                               : "Qwen3ForCausalLM";
  }

  void write_rope_scaling(json& out) const {
    const RopeConfig& rope = first_.rope;
    if (rope.factor != 1.0) {
      out["rope_scaling"] = {{"rope_type", "linear"}, {"factor", rope.factor}};
    }
    if (rope.divisors.empty()) {
      return;
    }
    const auto scaling = find_llama3(rope, first_.head_dim, model_.config.max_position_embeddings);
    if (!scaling) {
      throw WeightsError(fmt::format(
          "{}: its rotary frequencies (rope_freqs.weight) are scaled as no config.json can say: "
          "not by Llama 3's rule.",
          where_));
    }
    out["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", scaling->factor},
        {"low_freq_factor", scaling->low_freq_factor},
        {"high_freq_factor", scaling->high_freq_factor},
        {"original_max_position_embeddings", static_cast<int64_t>(scaling->original_positions)}};
  }

  void write_windows(json& out) const {
    if (type() == "llama") {
      return;
    }
    out["sliding_window"] = has_windows() ? json(model_.config.sliding_window) : json();
    const bool all = std::all_of(model_.plan.begin(), model_.plan.end(),
                                 [](const LayerPlan& layer) { return layer.window > 0; });
    if (type() == "mistral" && (all || !has_windows())) {
      return;  // with layer_types it would be a Ministral
    }
    if (type() != "mistral") {
      out["use_sliding_window"] = has_windows();
    }
    out["layer_types"] = json::array();
    for (const LayerPlan& layer : model_.plan) {
      out["layer_types"].push_back(layer.window > 0 ? "sliding_attention" : "full_attention");
    }
  }

  const ModelDescription& model_;
  const LayerPlan& first_;
  const std::string& where_;
};

}  // namespace

std::string llama_config_json(const ModelDescription& model, const std::string& dtype,
                              const std::string& where) {
  json config = LlamaConfigWriter(model, where).write();
  config["dtype"] = dtype;
  return config.dump(2) + "\n";
}

}  // namespace specdec
