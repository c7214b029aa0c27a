// Folders of Gemma 3n and 4 under the hub's names.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/error.h"
#include "core/families/gemma/gemma4_config.h"
#include "core/families/model.h"
#include "core/transformer/tensor_writer.h"
#include "core/transformer/transformer_model.h"
#include "kv/kv_cache.h"
#include "tests/support/error_message.h"
#include "tests/support/max_difference.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using HubTensors = std::map<std::string, Tensor>;

constexpr const char* kTinyConfig = R"({"vocab_size": 20, "vocab_size_per_layer_input": 20,
  "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2,
  "num_key_value_heads": 1, "head_dim": 8, "sliding_window": 6, "max_position_embeddings": 64,
  "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"])";

const std::map<std::string, std::string> kGemma4Kinds = {
    {"dense", R"(, "model_type": "gemma4_text", "global_head_dim": 16, "attention_k_eq_v": true})"},
    {"e", R"(, "model_type": "gemma4_text", "global_head_dim": 16, "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 4, "use_double_wide_mlp": true})"},
    {"moe", R"(, "model_type": "gemma4_text", "global_head_dim": 16, "enable_moe_block": true,
              "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8})"},
    {"3n", R"(, "model_type": "gemma3n_text", "num_kv_shared_layers": 2, "laurel_rank": 3,
             "hidden_size_per_layer_input": 4, "activation_sparsity_pattern": [0.5, 0, 0, 0]})"}};

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

Tensor all_logits(std::shared_ptr<const TransformerWeights> weights) {
  TransformerModel model(std::move(weights), paged_kv());
  return model.forward({.tokens = at::arange(1, 15, at::kInt)}).logits.clone();
}

class Gemma4WeightsTest : public testing::TestWithParam<std::string> {
 protected:
  void write(const HubTensors& tensors, const std::string& config) const {
    TensorWriter writer(at::kFloat);
    for (const auto& [name, tensor] : tensors) {
      writer.add(name, tensor.contiguous());
    }
    writer.write(folder_.path() / "model.safetensors");
    folder_.write("config.json", config);
  }
  std::string load_error() const {
    return error_message<WeightsError>([this] { load_model(folder_.path()); });
  }

  TemporaryFolder folder_;
  std::string config_ = kTinyConfig + kGemma4Kinds.at(GetParam());
  std::shared_ptr<TransformerTensors> model_ =
      random_model(parse_gemma4_config(config_, "config.json"),
                   {.seed = 3, .dtype = at::kFloat, .norm_deviation = 0.3});
};

TEST_P(Gemma4WeightsTest, AFolderIsTheModelOfItsTensors) {
  write(hub_tensors(*model_, "model."), config_);
  EXPECT_LT(max_difference(all_logits(load_model(folder_.path())), all_logits(pack(*model_))),
            1e-4);
}

TEST(Gemma4RouterTest, IsNotRoundedWithTheOtherMatrices) {
  const auto tensors = random_model(
      parse_gemma4_config(R"({"model_type": "gemma4_text", "vocab_size": 20, "hidden_size": 32,
        "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2,
        "moe_intermediate_size": 32, "head_dim": 16, "global_head_dim": 16})",
                          "experts"));
  for (const at::ScalarType dtype : {at::kBFloat16, at::kChar}) {
    const auto packed = pack(*tensors, {.dtype = dtype});
    EXPECT_EQ(packed->layers[0].experts.router.format(), WeightFormat::kFloat32);
    EXPECT_EQ(packed->layers[0].experts.down[0].format(), weight_format(dtype));
  }
}

TEST_P(Gemma4WeightsTest, WhatNothingReadsIsSkipped) {
  HubTensors tensors = hub_tensors(*model_, "model.language_model.");
  tensors["model.audio_tower.layers.0.weight"] = at::ones({3});
  tensors["model.embed_vision.embedding.weight"] = at::ones({3, 2});
  for (size_t i = 0; i < model_->plan.size(); ++i) {
    const LayerPlan& plan = model_->plan[i];
    if (kv_projections(plan) == 0) {
      const std::string prefix = fmt::format("model.language_model.layers.{}.self_attn.", i);
      tensors[prefix + "k_proj.weight"] = tensors[prefix + "v_proj.weight"] =
          at::ones({kv_rows(plan), 16});
      tensors[prefix + "k_norm.weight"] = at::ones({plan.head_dim});
    }
  }
  const std::string type = GetParam() == "3n" ? "gemma3n" : "gemma4";
  write(tensors, fmt::format(R"({{"model_type": "{}", "text_config": {}}})", type, config_));
  EXPECT_LT(max_difference(all_logits(load_model(folder_.path())), all_logits(pack(*model_))),
            1e-4);
}

TEST_P(Gemma4WeightsTest, EachMissingTensorIsNamed) {
  const HubTensors all = hub_tensors(*model_, "model.");
  for (const auto& [name, tensor] : all) {
    if (name.find("layer_scalar") != std::string::npos || name == "model.embed_tokens.weight") {
      continue;
    }
    HubTensors tensors = all;
    tensors.erase(name);
    write(tensors, config_);
    EXPECT_THAT(load_error(), testing::HasSubstr(name));
  }
}

TEST_P(Gemma4WeightsTest, AScalarThatIsMissingIsOne) {
  HubTensors tensors = hub_tensors(*model_, "model.");
  for (size_t i = 0; i < model_->layers.size(); ++i) {
    tensors.erase(fmt::format("model.layers.{}.layer_scalar", i));
    model_->layers[i].scalar = 1.0;
  }
  write(tensors, config_);
  EXPECT_LT(max_difference(all_logits(load_model(folder_.path())), all_logits(pack(*model_))),
            1e-4);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Gemma4WeightsTest, testing::Values("dense", "e", "moe", "3n"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace specdec
