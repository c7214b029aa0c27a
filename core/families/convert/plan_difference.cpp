#include "core/families/convert/plan_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/families/llama/llama3_scaling.h"

namespace specdec {
namespace {

bool is_same(double wanted, double found) {
  constexpr double kTolerance = 1e-6;
  return std::abs(wanted - found) <= kTolerance * std::max(std::abs(wanted), std::abs(found));
}

/// Notes the first pair of values that differ.
class Comparison {
 public:
  void integer(const std::string& key, int64_t wanted, int64_t found) {
    note(wanted == found, key, fmt::format("{}", wanted), fmt::format("{}", found));
  }
  void number(const std::string& key, double wanted, double found) {
    note(is_same(wanted, found), key, fmt::format("{:.7g}", wanted), fmt::format("{:.7g}", found));
  }
  void boolean(const std::string& key, bool wanted, bool found) {
    note(wanted == found, key, fmt::format("{}", wanted), fmt::format("{}", found));
  }
  /// Compares a number that 0 switches off.
  void optional(const std::string& key, double wanted, double found) {
    const auto text = [](double value) {
      return value == 0.0 ? std::string("none") : fmt::format("{:.7g}", value);
    };
    note(is_same(wanted, found), key, text(wanted), text(found));
  }
  void note(bool same, const std::string& key, const std::string& wanted,
            const std::string& found) {
    if (!same && !first_) {
      first_ = {.key = key, .wanted = wanted, .found = found};
    }
  }
  const std::optional<PlanDifference>& first() const { return first_; }

 private:
  std::optional<PlanDifference> first_;
};

void compare(const TransformerConfig& wanted, const TransformerConfig& found, Comparison& all) {
  all.integer("vocab_size", wanted.vocab_size, found.vocab_size);
  all.integer("hidden_size", wanted.hidden_size, found.hidden_size);
  all.integer("num_hidden_layers", wanted.num_layers, found.num_layers);
  all.integer("max_position_embeddings", wanted.max_position_embeddings,
              found.max_position_embeddings);
  all.number("rms_norm_eps", wanted.rms_norm_eps, found.rms_norm_eps);
  all.boolean("tie_word_embeddings", wanted.tie_word_embeddings, found.tie_word_embeddings);
  all.optional("final_logit_softcapping", wanted.final_soft_cap, found.final_soft_cap);
  all.boolean("use_bidirectional_attention", wanted.bidirectional, found.bidirectional);
}

std::string divisors_text(const std::vector<double>& divisors) {
  return divisors.empty() ? "none"
                          : fmt::format("divisors up to {:.7g}",
                                        *std::max_element(divisors.begin(), divisors.end()));
}

void compare(const LayerPlan& wanted, const LayerPlan& found, const std::string& layer,
             Comparison& all) {
  const std::string kind = wanted.window > 0 ? "sliding" : "full";
  const std::string rope =
      fmt::format("of the rotation (rope_parameters) of {} ({}_attention)", layer, kind);
  const std::string of = " of " + layer;
  all.integer("num_attention_heads" + of, wanted.heads, found.heads);
  all.integer("num_key_value_heads" + of, wanted.kv_heads, found.kv_heads);
  all.integer("head_dim" + of, wanted.head_dim, found.head_dim);
  all.integer("intermediate_size" + of, wanted.intermediate_size, found.intermediate_size);
  all.optional("sliding_window" + of, static_cast<double>(wanted.window),
               static_cast<double>(found.window));
  all.number("query_pre_attn_scalar" + of, query_scalar(wanted.query_scale),
             query_scalar(found.query_scale));
  all.optional("attn_logit_softcapping" + of, wanted.soft_cap, found.soft_cap);
  all.number("rope_theta " + rope, wanted.rope.theta, found.rope.theta);
  all.number("factor " + rope, wanted.rope.factor, found.rope.factor);
  all.note(same_divisors(wanted.rope.divisors, found.rope.divisors), "rope_scaling " + rope,
           divisors_text(wanted.rope.divisors), divisors_text(found.rope.divisors));
  all.boolean("attention_bias (q, k, v)" + of, wanted.qkv_bias, found.qkv_bias);
  all.boolean("attention_bias (o)" + of, wanted.output_bias, found.output_bias);
  all.boolean("mlp_bias" + of, wanted.mlp_bias, found.mlp_bias);
  all.boolean("norms of q and k" + of, wanted.qk_norm, found.qk_norm);
  all.boolean("norms after attention and MLP" + of, wanted.post_norms, found.post_norms);
  all.note(wanted.activation == found.activation, "hidden_act" + of, "another", "this");
}

}  // namespace

std::optional<PlanDifference> plan_difference(const ModelDescription& wanted,
                                              const ModelDescription& found) {
  Comparison all;
  compare(wanted.config, found.config, all);
  for (size_t i = 0; i < std::min(wanted.plan.size(), found.plan.size()); ++i) {
    compare(wanted.plan[i], found.plan[i], fmt::format("layer {}", i), all);
  }
  return all.first();
}

}  // namespace specdec
