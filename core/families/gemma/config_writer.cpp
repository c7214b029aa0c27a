#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/gemma/config.h"
#include "core/transformer/rope_config.h"

namespace specdec {
namespace {

using nlohmann::json;

class GemmaConfigWriter {
 public:
  explicit GemmaConfigWriter(const ModelDescription& model)
      : config_(model.config), plan_(model.plan), first_(model.plan.front()) {
    for (const LayerPlan& layer : plan_) {
      (layer.window > 0 ? sliding_rope_ : full_rope_) = layer.rope;
    }
    is_gemma3_ = config_.family == "gemma3_text";
  }

  json write(const std::string& dtype) const {
    json out = sizes();
    out["dtype"] = dtype;
    write_old_rope(out);
    if (config_.family == "gemma") {
      out["rope_parameters"] = rope_json(full_rope_);
      return out;
    }
    write_attention(out);
    if (is_gemma3_) {
      out["use_bidirectional_attention"] = config_.bidirectional;
      out["rope_parameters"] = {{"full_attention", rope_json(full_rope_)},
                                {"sliding_attention", rope_json(sliding_rope_)}};
    } else {
      out["rope_parameters"] = rope_json(plan_.back().rope);
    }
    return out;
  }

 private:
  json sizes() const {
    const char* class_name = config_.family == "gemma"        ? "GemmaForCausalLM"
                             : config_.family == "gemma2"     ? "Gemma2ForCausalLM"
                             : config_.family == "vaultgemma" ? "VaultGemmaForCausalLM"
                                                              : "Gemma3ForCausalLM";
    return {
        {"architectures", json::array({class_name})},
        {"attention_bias", first_.qkv_bias},
        {"bos_token_id", config_.bos_id < 0 ? json() : json(config_.bos_id)},
        {"eos_token_id", config_.end_ids},
        {"head_dim", first_.head_dim},
        {"hidden_activation", "gelu_pytorch_tanh"},
        {"hidden_size", config_.hidden_size},
        {"intermediate_size", first_.intermediate_size},
        {"max_position_embeddings", config_.max_position_embeddings},
        {"model_type", config_.family},
        {"num_attention_heads", first_.heads},
        {"num_hidden_layers", config_.num_layers},
        {"num_key_value_heads", first_.kv_heads},
        {"pad_token_id", 0},
        {"rms_norm_eps", config_.rms_norm_eps},
        {"tie_word_embeddings", config_.tie_word_embeddings},
        {"vocab_size", config_.vocab_size},
    };
  }

  /// The keys of transformers 4 beside those of 5, so that either reads the same rotations.
  void write_old_rope(json& out) const {
    out["rope_theta"] = is_gemma3_ ? full_rope_.theta : plan_.back().rope.theta;
    if (is_gemma3_) {
      out["rope_local_base_freq"] = sliding_rope_.theta;
      if (full_rope_.factor != 1.0) {
        out["rope_scaling"] = {{"rope_type", "linear"}, {"factor", full_rope_.factor}};
      }
    }
  }

  void write_attention(json& out) const {
    const double scalar = query_scalar(first_.query_scale);
    out["query_pre_attn_scalar"] = scalar;
    if (scalar == std::floor(scalar)) {  // transformers 5 takes no 64.0
      out["query_pre_attn_scalar"] = static_cast<int64_t>(scalar);
    }
    out["sliding_window"] =
        config_.bidirectional ? (config_.sliding_window - 1) * 2 : config_.sliding_window;
    out["layer_types"] = json::array();
    for (const LayerPlan& layer : plan_) {
      out["layer_types"].push_back(layer.window > 0 ? "sliding_attention" : "full_attention");
    }
    const auto cap = [](double value) { return value == 0.0 ? json() : json(value); };
    out["attn_logit_softcapping"] = cap(first_.soft_cap);
    out["final_logit_softcapping"] = cap(config_.final_soft_cap);
  }

  const TransformerConfig& config_;
  const std::vector<LayerPlan>& plan_;
  const LayerPlan& first_;
  bool is_gemma3_ = false;
  RopeConfig full_rope_;  ///< of Gemma 3; the default where no layer is full
  RopeConfig sliding_rope_;
};

}  // namespace

std::string gemma_config_json(const ModelDescription& model, const std::string& dtype) {
  SPECDEC_CHECK(!model.plan.empty(), "gemma_config_json: there are no layers");
  return GemmaConfigWriter(model).write(dtype).dump(2) + "\n";
}

}  // namespace specdec
