#include "core/transformer/heads/head_layer_config.h"

#include <cmath>

#include "core/error.h"
#include "core/transformer/heads/head_files.h"
#include "core/transformer/rope_config.h"

namespace specdec {

Activation read_head_activation(const JsonKeys& keys, Activation usual) {
  const std::string default_name = usual == Activation::kSilu ? "silu" : "gelu_pytorch_tanh";
  const std::string name = keys.text("hidden_activation", keys.text("hidden_act", default_name));
  if (name != "silu" && name != "gelu_pytorch_tanh") {
    keys.fail("hidden_act", fmt::format("is '{}'; supported: silu, gelu_pytorch_tanh", name));
  }
  return name == "silu" ? Activation::kSilu : Activation::kGeluTanh;
}

void refuse_layer_parts(const JsonKeys& keys) {
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    if (keys.boolean(bias, false)) {
      keys.fail(bias, "is true; layers of heads with biases are not supported");
    }
  }
  for (const char* part : {"enable_moe_block", "use_double_wide_mlp"}) {
    if (keys.boolean(part, false)) {
      keys.fail(part, "is true; a head has one dense MLP of intermediate_size");
    }
  }
  if (keys.integer("hidden_size_per_layer_input", 0) != 0) {
    keys.fail("hidden_size_per_layer_input", "is not 0; heads have no per-layer inputs");
  }
  if (keys.number("partial_rotary_factor", 1.0) != 1.0) {
    keys.fail("partial_rotary_factor", "is not 1; heads turn all of a key's numbers");
  }
}

void read_gemma4_sizes(const JsonKeys& keys, LayerPlan& plan) {
  if (keys.boolean("attention_k_eq_v", false)) {
    plan.values = ValueKind::kRawKeys;
    plan.kv_heads = keys.positive("num_global_key_value_heads", plan.kv_heads);
  }
  if (plan.heads % plan.kv_heads != 0) {
    keys.fail("num_global_key_value_heads",
              fmt::format("is {}, which does not divide the {} heads", plan.kv_heads, plan.heads));
  }
  plan.head_dim = keys.positive("global_head_dim", plan.head_dim);
  if (plan.head_dim % 2 != 0) {
    keys.fail("global_head_dim",
              fmt::format("is {}; rotary embeddings need an even number", plan.head_dim));
  }
}

void read_proportional_rope(const JsonKeys& keys, LayerPlan& plan) {
  const double share = keys.positive_number("partial_rotary_factor", 1.0);
  const auto pairs = static_cast<int64_t>(share * static_cast<double>(plan.head_dim) / 2.0);
  if (share > 1.0 || pairs == 0) {
    keys.fail("partial_rotary_factor",
              fmt::format("is {}, of {} numbers a head", share, plan.head_dim));
  }
  plan.rope.rotated_pairs = 2 * pairs < plan.head_dim ? pairs : 0;
  plan.rope.factor = keys.positive_number("factor", 1.0);
}

void read_gemma4_head_layer(const JsonKeys& keys, int64_t hidden_size, LayerPlan& plan) {
  refuse_layer_parts(keys);
  if (keys.integer("num_kv_shared_layers", 0) != 0) {
    keys.fail("num_kv_shared_layers", "is not 0; each layer of a head has keys of its own");
  }
  read_head_layer_sizes(keys, hidden_size, plan);
  read_gemma4_sizes(keys, plan);
  plan.query_scale = 1.0;
  plan.qk_norm = plan.value_norm = plan.post_norms = plan.layer_scalar = true;
  plan.activation = read_head_activation(keys, Activation::kGeluTanh);
  const JsonKeys rope = keys.object("rope_parameters").object("full_attention");
  plan.rope.theta = rope.positive_number("rope_theta");
  const std::string type = rope_type(rope);
  if (type == "proportional") {
    read_proportional_rope(rope, plan);
  } else if (type != "default") {
    rope.fail("rope_type", fmt::format("is '{}'; supported: default, proportional", type));
  }
}

}  // namespace specdec
