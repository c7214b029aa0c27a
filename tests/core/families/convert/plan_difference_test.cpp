#include "core/families/convert/plan_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/families/model.h"
#include "tests/support/golden.h"

namespace specdec {
namespace {

TEST(PlanDifferenceTest, EveryPartIsNamed) {
  using Model = ModelDescription;
  const std::vector<std::pair<const char*, std::function<void(Model&)>>> changes = {
      {"vocab_size", [](Model& m) { ++m.config.vocab_size; }},
      {"hidden_size", [](Model& m) { ++m.config.hidden_size; }},
      {"num_hidden_layers", [](Model& m) { ++m.config.num_layers; }},
      {"max_position_embeddings", [](Model& m) { ++m.config.max_position_embeddings; }},
      {"rms_norm_eps", [](Model& m) { m.config.rms_norm_eps *= 2.0; }},
      {"tie_word_embeddings", [](Model& m) { m.config.tie_word_embeddings ^= true; }},
      {"final_logit_softcapping", [](Model& m) { m.config.final_soft_cap = 30.0; }},
      {"use_bidirectional_attention", [](Model& m) { m.config.bidirectional = true; }},
      {"num_attention_heads of layer 1", [](Model& m) { ++m.plan[1].heads; }},
      {"num_key_value_heads of layer 1", [](Model& m) { ++m.plan[1].kv_heads; }},
      {"head_dim of layer 1", [](Model& m) { ++m.plan[1].head_dim; }},
      {"intermediate_size of layer 1", [](Model& m) { ++m.plan[1].intermediate_size; }},
      {"sliding_window of layer 1", [](Model& m) { m.plan[1].window = 7; }},
      {"query_pre_attn_scalar of layer 1", [](Model& m) { m.plan[1].query_scale *= 2.0; }},
      {"attn_logit_softcapping of layer 1", [](Model& m) { m.plan[1].soft_cap = 50.0; }},
      {"rope_theta of the rotation (rope_parameters) of layer 1 (full",
       [](Model& m) { m.plan[1].rope.theta = 7; }},
      {"factor of the rotation (rope_parameters) of layer 1 (full",
       [](Model& m) { m.plan[1].rope.factor = 7; }},
      {"rope_scaling of the rotation (rope_parameters) of layer 1",
       [](Model& m) { m.plan[1].rope.divisors = {}; }},
      {"attention_bias (q, k, v) of layer 1", [](Model& m) { m.plan[1].qkv_bias ^= true; }},
      {"attention_bias (o) of layer 1", [](Model& m) { m.plan[1].output_bias ^= true; }},
      {"mlp_bias of layer 1", [](Model& m) { m.plan[1].mlp_bias ^= true; }},
      {"norms of q and k of layer 1", [](Model& m) { m.plan[1].qk_norm ^= true; }},
      {"norms after attention", [](Model& m) { m.plan[1].post_norms ^= true; }},
      {"hidden_act", [](Model& m) { m.plan[1].activation = Activation::kGeluTanh; }}};
  const ModelDescription model = describe_model(test_data("llama-a"));
  EXPECT_FALSE(plan_difference(model, model));
  for (const auto& [key, change] : changes) {
    ModelDescription other = model;
    change(other);
    const auto difference = plan_difference(model, other);
    ASSERT_TRUE(difference) << key;
    EXPECT_THAT(difference->key, testing::StartsWith(key));
    EXPECT_NE(difference->wanted, difference->found) << key;
  }
}

TEST(PlanDifferenceTest, NumbersAreTheSameAsFloat32) {
  const ModelDescription model = describe_model(test_data("llama-a"));
  ModelDescription other = model;
  other.config.rms_norm_eps = static_cast<float>(model.config.rms_norm_eps);
  for (double& divisor : other.plan[0].rope.divisors) {
    divisor *= 1.0 + 1e-6;
  }
  EXPECT_FALSE(plan_difference(model, other));
}

}  // namespace
}  // namespace specdec
