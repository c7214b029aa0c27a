#include "experiments/components/layer_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/families/gemma/gemma4_config.h"
#include "core/families/model.h"
#include "kv/paged_kv.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::FieldsAre;

/// Six layers: two sliding ones, a full one, then three that share keys and values and are twice as
/// wide.
ModelDescription e_model() {
  return parse_gemma4_config(R"({"model_type": "gemma4_text", "vocab_size": 600, "hidden_size": 16,
      "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
      "global_head_dim": 16, "sliding_window": 6, "max_position_embeddings": 256,
      "vocab_size_per_layer_input": 600, "hidden_size_per_layer_input": 4,
      "num_hidden_layers": 6, "num_kv_shared_layers": 3, "use_double_wide_mlp": true,
      "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                      "sliding_attention", "sliding_attention", "full_attention"]})",
                             "an E model");
}

TEST(LayerProfileTest, KindsDifferInWhatTakesTime) {
  EXPECT_THAT(layer_kinds(e_model().plan),
              ElementsAre(FieldsAre(0, 2), FieldsAre(2, 1), FieldsAre(3, 2), FieldsAre(5, 1)));
}

TEST(LayerProfileTest, LayersThatAreRepeatedReadTheirNewestSource) {
  const std::vector<int64_t> layers = {2, 1, 1, 3, 5, 4};
  const ModelDescription model = with_layers(e_model(), layers, 300);
  EXPECT_EQ(model.config.num_layers, 6);
  EXPECT_EQ(model.config.vocab_size, 300);
  EXPECT_EQ(model.config.per_layer_count, 6);
  std::vector<int64_t> sources;
  std::vector<int64_t> inputs;
  for (const LayerPlan& plan : model.plan) {
    sources.push_back(plan.kv_source);
    inputs.push_back(plan.per_layer_index);
  }
  EXPECT_THAT(sources, ElementsAre(-1, -1, -1, 2, 0, 2));
  EXPECT_THAT(inputs, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THROW(with_layers(e_model(), std::vector<int64_t>{3}, 300), InternalError);
}

TEST(LayerProfileTest, AModelsLayersInTheirOrderAreTheModel) {
  const ModelDescription whole = e_model();
  const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5};
  EXPECT_EQ(with_layers(whole, all, whole.config.vocab_size).plan, whole.plan);
}

LayerProfileOptions few_repeats() {
  LayerProfileOptions options;
  options.curve.new_tokens = {1, 4};
  options.curve.contexts = {8, 16};
  options.curve.repeats = 9;
  return options;
}

/// A kind of layer that takes long enough to be told from noise.
ModelDescription wide_model() {
  return parse_gemma4_config(R"({"model_type": "gemma4_text", "vocab_size": 300, "hidden_size": 256,
      "intermediate_size": 2048, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
      "global_head_dim": 32, "sliding_window": 6, "max_position_embeddings": 256,
      "hidden_size_per_layer_input": 0, "num_hidden_layers": 3, "layer_types": ["sliding_attention", "sliding_attention",
      "full_attention"]})",
                             "a wide model");
}

TEST(LayerProfileTest, TheWholeIsTheSumOfItsParts) {
  const LayerProfile profile = measure_by_layer(wide_model(), paged_kv(), few_repeats());
  ASSERT_EQ(profile.kinds.size(), 2U);
  EXPECT_GT(profile.kinds[0].bytes, 4 * 3 * 256 * 2048);
  ASSERT_EQ(profile.whole.points.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    const double sum = profile.rest.points[i].seconds +
                       2.0 * profile.kinds[0].curve.points[i].seconds +
                       profile.kinds[1].curve.points[i].seconds;
    EXPECT_NEAR(profile.whole.points[i].seconds, sum, 1e-12);
    EXPECT_GT(profile.kinds[0].curve.points[i].seconds, 0.0);
  }
  EXPECT_EQ(profile.whole.points[3].new_tokens, 4);
  EXPECT_EQ(profile.whole.points[3].context, 16);
}

TEST(LayerProfileTest, SpeedFollowsFromCostsAndAcceptance) {
  CostCurve curve;
  curve.points = {{.new_tokens = 1, .context = 16, .seconds = 1.0},
                  {.new_tokens = 2, .context = 16, .seconds = 1.2},
                  {.new_tokens = 3, .context = 16, .seconds = 1.4}};
  const std::vector<double> acceptance = {0.8, 0.5};
  const std::vector<PredictedSpeed> speed = predict_speed(curve, 16, acceptance, 0.1);
  ASSERT_EQ(speed.size(), 2U);
  EXPECT_DOUBLE_EQ(speed[0].tokens, 1.8);
  EXPECT_DOUBLE_EQ(speed[0].speed_up, 1.8 / 1.3);
  EXPECT_DOUBLE_EQ(speed[1].tokens, 2.2);
  EXPECT_DOUBLE_EQ(speed[1].speed_up, 2.2 / 1.6);
}

}  // namespace
}  // namespace specdec
