#include "tests/support/hub_tensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

namespace specdec {
namespace {

void add_hub_attention(HubTensors& out, const std::string& prefix, const LayerPlan& plan,
                       const LayerTensors& layer) {
  const int64_t kv = kv_rows(plan);
  out[prefix + "q_proj.weight"] = layer.qkv.narrow(0, 0, query_rows(plan));
  const int64_t own = kv_projections(plan);
  if (own > 0) {
    out[prefix + "k_proj.weight"] = layer.qkv.narrow(0, query_rows(plan), kv);
    out[prefix + "k_norm.weight"] = layer.k_norm;
  }
  if (own > 1) {
    out[prefix + "v_proj.weight"] = layer.qkv.narrow(0, query_rows(plan) + kv, kv);
  }
  out[prefix + "q_norm.weight"] = layer.q_norm;
  out[prefix + "o_proj.weight"] = layer.output;
  if (plan.qkv_bias) {
    const char* const parts[] = {"q_proj.bias", "k_proj.bias", "v_proj.bias"};
    int64_t first = 0;
    for (int64_t i = 0; i <= own; ++i) {
      const int64_t rows = i == 0 ? query_rows(plan) : kv;
      out[prefix + parts[i]] = layer.qkv_bias.narrow(0, first, rows);
      first += rows;
    }
    out[prefix + "o_proj.bias"] = layer.output_bias;
  }
}

void add_hub_branches(HubTensors& out, const std::string& prefix, const LayerPlan& plan,
                      const LayerTensors& layer) {
  const double hidden = static_cast<double>(layer.gate_up.size(1));
  if (plan.layer_scalar) {
    out[prefix + "layer_scalar"] = at::full({1}, layer.scalar);
  }
  if (plan.experts.count > 0) {
    out[prefix + "router.proj.weight"] = layer.experts.router;
    out[prefix + "router.scale"] = layer.experts.router_norm * std::sqrt(hidden);
    out[prefix + "router.per_expert_scale"] = layer.experts.output_scale;
    out[prefix + "experts.gate_up_proj"] = at::stack(layer.experts.gate_up);
    out[prefix + "experts.down_proj"] = at::stack(layer.experts.down);
    out[prefix + "post_feedforward_layernorm_1.weight"] = layer.experts.dense_post_norm;
    out[prefix + "pre_feedforward_layernorm_2.weight"] = layer.experts.norm;
    out[prefix + "post_feedforward_layernorm_2.weight"] = layer.experts.post_norm;
  }
  if (plan.per_layer_size > 0) {
    out[prefix + "per_layer_input_gate.weight"] = layer.per_layer.gate;
    out[prefix + "per_layer_projection.weight"] = layer.per_layer.projection;
    out[prefix + "post_per_layer_input_norm.weight"] = layer.per_layer.post_norm;
  }
  if (plan.laurel_rank > 0) {
    out[prefix + "laurel.linear_left.weight"] = layer.laurel.left;
    out[prefix + "laurel.linear_right.weight"] = layer.laurel.right;
    out[prefix + "laurel.post_laurel_norm.weight"] = layer.laurel.post_norm;
  }
  if (plan.altup.streams > 0) {
    out[prefix + "altup.modality_router.weight"] = layer.altup.router;
    out[prefix + "altup.router_norm.weight"] = layer.altup.router_norm * hidden;
    out[prefix + "altup.prediction_coefs.weight"] = layer.altup.predict;
    out[prefix + "altup.correction_coefs.weight"] = layer.altup.correct;
    out[prefix + "altup.correct_output_scale"] = layer.altup.output_scale;
  }
}

}  // namespace

HubTensors hub_tensors(const TransformerTensors& model, const std::string& root) {
  HubTensors out = {{root + "embed_tokens.weight", model.embedding},
                    {root + "norm.weight", model.final_norm}};
  if (model.per_layer_table.defined()) {
    const RowTable& table = model.per_layer_table;
    Tensor rows = at::empty({table.rows(), table.width()});
    table.look_up(at::arange(table.rows(), at::kInt), 1.0, rows);
    out[root + "embed_tokens_per_layer.weight"] = rows;
    out[root + "per_layer_model_projection.weight"] = model.per_layer_projection;
    out[root + "per_layer_projection_norm.weight"] = model.per_layer_norm;
  }
  for (size_t i = 0; i < model.altup_projections.size(); ++i) {
    const std::string end = fmt::format("projections.{}.weight", i);
    out[root + "altup_" + end] = model.altup_projections[i];
    out[root + "altup_unembed_" + end] = model.altup_unembeddings[i];
  }
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const std::string prefix = fmt::format("{}layers.{}.", root, i);
    const LayerTensors& layer = model.layers[i];
    add_hub_attention(out, prefix + "self_attn.", model.plan[i], layer);
    const auto gate_up = layer.gate_up.chunk(2);
    out[prefix + "mlp.gate_proj.weight"] = gate_up[0];
    out[prefix + "mlp.up_proj.weight"] = gate_up[1];
    out[prefix + "mlp.down_proj.weight"] = layer.down;
    out[prefix + "input_layernorm.weight"] = layer.attention_norm;
    out[prefix + "post_attention_layernorm.weight"] = layer.attention_post_norm;
    out[prefix + "pre_feedforward_layernorm.weight"] = layer.mlp_norm;
    out[prefix + "post_feedforward_layernorm.weight"] = layer.mlp_post_norm;
    add_hub_branches(out, prefix, model.plan[i], layer);
  }
  return out;
}

}  // namespace specdec
