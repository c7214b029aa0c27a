// EAGLE-3 as DeepSpec publishes it for Gemma 4: a layer of that family over the target's outputs.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/transformer/heads/eagle_head.h"
#include "core/transformer/heads/feature_model.h"
#include "core/transformer/heads/head_reference.h"
#include "core/transformer/tensor_writer.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/max_difference.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr int64_t kDeepVocab = 11;
constexpr int64_t kDeepHidden = 16;

/// A folder with the names, shapes and keys of deepseek-ai/eagle3_gemma4_12b_ttt7, tiny.
class DeepSpecEagleTest : public testing::Test {
 protected:
  DeepSpecEagleTest() {
    RandomTensors random({.seed = 3, .dtype = at::kDouble, .norm_deviation = 0.3});
    const std::string layer = "layers.0.";
    tensors_ = {{"embed_tokens.weight", random.matrix(kDeepVocab, kDeepHidden)},
                {"fc.weight", random.matrix(kDeepHidden, 3 * kDeepHidden)},
                {"norm.weight", random.norm(kDeepHidden)},
                {"lm_head.weight", random.matrix(kDeepVocab, kDeepHidden) * 4.0},
                {layer + "self_attn.q_proj.weight", random.matrix(32, 2 * kDeepHidden)},
                {layer + "self_attn.k_proj.weight", random.matrix(16, 2 * kDeepHidden)},
                {layer + "self_attn.o_proj.weight", random.matrix(kDeepHidden, 32)},
                {layer + "self_attn.q_norm.weight", random.norm(16)},
                {layer + "self_attn.k_norm.weight", random.norm(16)},
                {layer + "mlp.gate_proj.weight", random.matrix(24, kDeepHidden)},
                {layer + "mlp.up_proj.weight", random.matrix(24, kDeepHidden)},
                {layer + "mlp.down_proj.weight", random.matrix(kDeepHidden, 24)},
                {layer + "layer_scalar", at::full({1}, 0.75, at::kDouble)}};
    for (const char* norm : {"hidden_norm", "input_layernorm", "post_attention_layernorm",
                             "pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
      tensors_[layer + norm + ".weight"] = random.norm(kDeepHidden);
    }
  }

  void write(const json& config) const {
    TensorWriter writer(at::kDouble);
    for (const auto& [name, tensor] : tensors_) {
      writer.add(name, tensor);
    }
    writer.write(folder_.path() / "model.safetensors");
    folder_.write("config.json", config.dump());
  }
  std::shared_ptr<EagleHead> load() const {
    write(config_);
    return load_eagle_head(folder_.path(), EagleVersion::kEagle3, *target_);
  }
  std::string error_of(const std::function<void(json&)>& change) const {
    json config = config_;
    change(config);
    write(config);
    return error_message<WeightsError>(
        [&] { load_eagle_head(folder_.path(), EagleVersion::kEagle3, *target_); });
  }
  std::string error_of(const std::string& key, const json& value) const {
    return error_of([&](json& config) { config[key] = value; });
  }
  const Tensor& tensor(const std::string& name) const { return tensors_.at(name + ".weight"); }

  TemporaryFolder folder_;
  std::shared_ptr<TransformerWeights> target_ = tiny_gemma4("dense", kDeepVocab);
  std::map<std::string, Tensor> tensors_;
  json config_ = {
      {"architectures", {"Gemma4Eagle3Model"}},
      {"model_type", "gemma4_unified_text"},
      {"attention_bias", false},
      {"attention_k_eq_v", true},
      {"enable_moe_block", false},
      {"final_logit_softcapping", 3.0},
      {"global_head_dim", 16},
      {"head_dim", 8},
      {"hidden_activation", "gelu_pytorch_tanh"},
      {"hidden_size", kDeepHidden},
      {"hidden_size_per_layer_input", 0},
      {"intermediate_size", 24},
      {"layer_types", {"full_attention"}},
      {"num_attention_heads", 2},
      {"num_global_key_value_heads", 1},
      {"num_hidden_layers", 1},
      {"num_key_value_heads", 2},
      {"num_target_layers", 4},
      {"rms_norm_eps", 1e-6},
      {"rope_parameters",
       {{"full_attention",
         {{"rope_type", "proportional"}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.25}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}}},
      {"sliding_window", 512},
      {"target_layer_ids", {0, 2, 3}},
      {"ttt_length", 7},
      {"use_double_wide_mlp", false},
      {"vocab_size", kDeepVocab}};
};

TEST_F(DeepSpecEagleTest, ReadsThePublishedLayout) {
  const auto head = load();
  const EagleConfig& config = head->config;
  EXPECT_EQ(config.style, LayerStyle::kGemma4);
  EXPECT_EQ(config.capture_layers, (std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(config.soft_cap, 3.0);
  EXPECT_EQ(config.plan.head_dim, 16);
  EXPECT_EQ(config.plan.kv_heads, 1);
  EXPECT_EQ(config.plan.values, ValueKind::kRawKeys);
  EXPECT_EQ(config.plan.rope.rotated_pairs, 2);
  EXPECT_EQ(config.plan.rope.theta, 1e6);
  EXPECT_EQ(config.plan.query_scale, 1.0);
  EXPECT_EQ(config.plan.window, 0);
  EXPECT_EQ(head->layer.weights.scalar, 0.75);
  EXPECT_FALSE(head->embedding.defined());
  EXPECT_FALSE(config.norm_before_residual);
}

/// Attention of a single token gives back the value; the rest is written down here.
TEST_F(DeepSpecEagleTest, OneTokenIsComputedAsPublished) {
  const auto head = load();
  at::manual_seed(4);
  const Tensor features = at::randn({1, 3 * kDeepHidden}, at::kDouble);
  const auto norm = [](const Tensor& x, const Tensor& scale) {
    return x * at::rsqrt(x.square().mean(-1, true) + 1e-6) * scale;
  };
  const auto layer_norm = [&](const Tensor& x, const std::string& name) {
    return norm(x, tensor("layers.0." + name));
  };
  const Tensor embedding = unpack(*target_).embedding.narrow(0, 5, 1) * std::sqrt(16.0);
  const auto step = [&](const Tensor& feature) {
    const Tensor input =
        at::cat({layer_norm(embedding, "input_layernorm"), layer_norm(feature, "hidden_norm")}, -1);
    const Tensor key = at::linear(input, tensor("layers.0.self_attn.k_proj"));
    const Tensor value = norm(key, at::ones({16}, at::kDouble));
    const Tensor mixed = at::cat({value, value}, -1);  // both heads read the one
    const Tensor middle =
        feature + layer_norm(at::linear(mixed, tensor("layers.0.self_attn.o_proj")),
                             "post_attention_layernorm");
    const Tensor x = layer_norm(middle, "pre_feedforward_layernorm");
    const Tensor gated = at::gelu(at::linear(x, tensor("layers.0.mlp.gate_proj")), "tanh") *
                         at::linear(x, tensor("layers.0.mlp.up_proj"));
    return 0.75 * (middle + layer_norm(at::linear(gated, tensor("layers.0.mlp.down_proj")),
                                       "post_feedforward_layernorm"));
  };
  const Tensor wanted = step(at::linear(features, tensor("fc")));
  const auto logits = [&](const Tensor& output) {
    return 3.0 * at::tanh(at::linear(norm(output, tensor("norm")), tensor("lm_head")) / 3.0);
  };
  const auto model = make_eagle_model(head, target_, paged_kv());
  const TokenBatch first{.tokens = at::tensor({5}, at::kInt), .inputs = {.features = features}};
  const ForwardResult result = model->forward(first, {.hidden = Hidden::kAll});
  EXPECT_LE(max_difference(result.final_hidden, wanted), 1e-10) << "what recurs has no norm";
  EXPECT_LE(max_difference(result.logits, logits(wanted)), 1e-10);
  model->truncate(0);
  const ForwardResult own = model->forward(
      {.tokens = at::tensor({5}, at::kInt), .inputs = {.features = wanted, .own_features = true}});
  EXPECT_LE(max_difference(own.logits, logits(step(wanted))), 1e-10) << "its own skip fc";
}

TEST_F(DeepSpecEagleTest, CachedEqualsUnrolled) {
  const auto head = load();
  const Tensor tokens = at::arange(9, at::kLong).mul(7).remainder(kDeepVocab);
  at::manual_seed(4);
  const Tensor streams = at::randn({9, 3 * kDeepHidden}, at::kDouble);
  UnrolledKeys past;
  HeadInputs inputs{
      .tokens = tokens.unsqueeze(0), .features = streams.unsqueeze(0), .unrolled = &past};
  const auto model = make_eagle_model(head, target_, paged_kv());
  ForwardResult cached = model->forward(
      {.tokens = tokens.to(at::kInt), .inputs = {.features = streams}}, {.hidden = Hidden::kAll});
  HeadOutputs plain = eagle_reference(*head, unpack(*target_), inputs);
  EXPECT_LE(max_difference(cached.logits, plain.logits[0]), 1e-10);
  for (int64_t step = 1; step < 4; ++step) {
    inputs.features = plain.features;
    inputs.own_features = true;
    plain = eagle_reference(*head, unpack(*target_), inputs);
    const Tensor own = cached.final_hidden.narrow(0, cached.final_hidden.size(0) - 1, 1);
    cached = model->forward({.tokens = tokens.narrow(0, 8, 1).to(at::kInt),
                             .inputs = {.features = own, .own_features = true}},
                            {.hidden = Hidden::kAll});
    EXPECT_LE(max_difference(cached.logits[0], plain.logits[0][8]), 1e-10) << step;
  }
}

TEST_F(DeepSpecEagleTest, SavedAndLoadedItIsTheSame) {
  const auto head = load();
  const TemporaryFolder saved;
  save_eagle_head(*head, saved.path(), at::kDouble);
  const auto again = load_eagle_head(saved.path(), EagleVersion::kEagle3, *target_);
  EXPECT_EQ(again->config.plan, head->config.plan);
  EXPECT_EQ(again->config.soft_cap, head->config.soft_cap);
  EXPECT_EQ(again->layer.weights.scalar, 0.75);
  EXPECT_TRUE(at::equal(again->layer.weights.qkv, head->layer.weights.qkv));
}

TEST_F(DeepSpecEagleTest, WithoutTheKEqualsVTheValuesAreProjected) {
  config_["attention_k_eq_v"] = false;
  config_["num_key_value_heads"] = 1;
  EXPECT_THAT(error_of([](json&) {}), HasSubstr("v_proj"));
  tensors_["layers.0.self_attn.v_proj.weight"] =
      tensor("layers.0.self_attn.k_proj").flip(0).contiguous();
  EXPECT_EQ(load()->layer.weights.qkv.size(0), 32 + 2 * 16);
}

TEST_F(DeepSpecEagleTest, WhatCannotBeRunIsNamed) {
  EXPECT_THAT(error_of("enable_moe_block", true), HasSubstr("enable_moe_block"));
  EXPECT_THAT(error_of("use_double_wide_mlp", true), HasSubstr("use_double_wide_mlp"));
  EXPECT_THAT(error_of("hidden_size_per_layer_input", 256),
              HasSubstr("hidden_size_per_layer_input"));
  EXPECT_THAT(error_of("num_hidden_layers", 2), HasSubstr("one layer"));
  EXPECT_THAT(error_of([](json& config) { config.erase("rope_parameters"); }),
              HasSubstr("rope_parameters"));
  EXPECT_THAT(error_of([](json& config) {
                config["rope_parameters"]["full_attention"]["partial_rotary_factor"] = 1.5;
              }),
              HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(error_of("num_global_key_value_heads", 3), HasSubstr("num_global_key_value_heads"));
  EXPECT_THAT(error_of("global_head_dim", 15), HasSubstr("global_head_dim"));
  EXPECT_THAT(error_of("layer_types", {"sliding_attention"}), HasSubstr("layer_types"));
  EXPECT_THAT(error_of("num_target_layers", 5), HasSubstr("a number of layers of 5"));
  EXPECT_THAT(error_of("vocab_size", 12), HasSubstr("a vocabulary of 12"));
  EXPECT_THAT(error_of("target_layer_ids", {0, 4}), HasSubstr("after layer 4"));
  EXPECT_THAT(error_of("target_layer_ids", {-1, 2}), HasSubstr("target_layer_ids"));
  EXPECT_THAT(error_of("target_layer_ids", {0, 1}), HasSubstr("fc.weight"));
}

}  // namespace
}  // namespace specdec
