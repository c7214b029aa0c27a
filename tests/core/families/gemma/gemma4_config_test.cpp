#include "core/families/gemma/gemma4_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/parameter_name.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kSlidingType = "sliding_attention";
constexpr const char* kFullType = "full_attention";

json gemma4_keys() {
  return {{"model_type", "gemma4_text"},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"layer_types", {kSlidingType, kFullType, kSlidingType, kFullType}}};
}

json gemma3n_keys() {
  json config = gemma4_keys();
  config["model_type"] = "gemma3n_text";
  config["num_kv_shared_layers"] = 2;
  return config;
}

ModelDescription parse_gemma4(const json& config) {
  return parse_gemma4_config(config.dump(), "config.json");
}

TEST(Gemma4ConfigTest, DefaultsAreTheReleases) {
  json config = gemma4_keys();
  config.erase("layer_types");
  config["num_hidden_layers"] = 7;
  const ModelDescription model = parse_gemma4(config);
  EXPECT_EQ(model.config.family, "gemma4_text");
  EXPECT_EQ(model.config.vocab_size, 262144);
  EXPECT_EQ(model.config.max_position_embeddings, 131072);
  EXPECT_EQ(model.config.sliding_window, 512);
  EXPECT_EQ(model.config.final_soft_cap, 0.0);
  EXPECT_EQ(model.config.per_layer_count, 7);
  EXPECT_EQ(model.config.per_layer_vocab, 262144);
  EXPECT_EQ(model.plan[6].per_layer_size, 256);
  EXPECT_EQ(model.config.bos_id, 2);
  EXPECT_TRUE(model.config.tie_word_embeddings);
  EXPECT_TRUE(model.scaled_embedding);
  EXPECT_THAT(model.config.end_ids, testing::ElementsAre(1));
  for (size_t layer = 0; layer < 7; ++layer) {
    const LayerPlan& plan = model.plan[layer];
    const bool full = layer == 5 || layer == 6;  // each sixth, and the last
    EXPECT_EQ(plan.window, full ? 0 : 512) << layer;
    EXPECT_EQ(plan.head_dim, full ? 512 : 256) << layer;
    EXPECT_EQ(plan.rope.theta, full ? 1e6 : 1e4) << layer;
    EXPECT_EQ(plan.rope.rotated_pairs, full ? 64 : 0) << layer;
    EXPECT_EQ(plan.values, ValueKind::kProjected) << layer;
    EXPECT_EQ(plan.kv_source, -1) << layer;
    EXPECT_TRUE(plan.qk_norm && plan.value_norm && plan.post_norms && plan.layer_scalar) << layer;
  }
}

TEST(Gemma4ConfigTest, UnifiedModelsHaveNoInputsOfLayersUnlessTheySaySo) {
  json config = gemma4_keys();
  config["model_type"] = "gemma4_unified_text";
  EXPECT_EQ(parse_gemma4(config).config.per_layer_count, 0);
}

TEST(Gemma4ConfigTest, DefaultsOfGemma3n) {
  json config = gemma3n_keys();
  config.erase("layer_types");
  config.erase("num_kv_shared_layers");
  config["num_hidden_layers"] = 20;
  const ModelDescription model = parse_gemma4(config);
  EXPECT_EQ(model.config.vocab_size, 262400);
  EXPECT_EQ(model.config.max_position_embeddings, 32768);
  EXPECT_EQ(model.config.final_soft_cap, 30.0);
  EXPECT_EQ(model.config.per_layer_vocab, 262144);
  EXPECT_EQ(model.config.per_layer_count, 20);
  for (size_t layer = 0; layer < 20; ++layer) {
    const LayerPlan& plan = model.plan[layer];
    const bool full = layer % 5 == 4;
    EXPECT_EQ(plan.window, full ? 0 : 512) << layer;
    EXPECT_EQ(plan.head_dim, 256) << layer;
    EXPECT_EQ(plan.rope.rotated_pairs, 0) << layer;
    EXPECT_EQ(plan.kv_source, layer < 5 ? -1 : full ? 4 : 3) << layer;  // 15 layers are shared
    EXPECT_EQ(plan.per_layer_size, 256) << layer;
    EXPECT_EQ(plan.per_layer_index, static_cast<int64_t>(layer));
    EXPECT_EQ(plan.laurel_rank, 64) << layer;
    EXPECT_EQ(plan.altup, (AltUpConfig{.streams = 4, .active = 0, .correct_scale = true}));
    EXPECT_FALSE(plan.layer_scalar || plan.qkv_bias) << layer;
    EXPECT_EQ(plan.sparsity_cut.has_value(), layer < 10) << layer;
  }
}

TEST(Gemma4ConfigTest, BothStylesOfTwoGeometriesAreTheSame) {
  json hub = gemma4_keys();
  hub.update({{"head_dim", 8},
              {"global_head_dim", 16},
              {"attention_k_eq_v", true},
              {"num_global_key_value_heads", 1}});
  json saved = gemma4_keys();
  saved.update({{"head_dim", 8}, {"attention_k_eq_v", true}});
  for (const char* layer : {"1", "3"}) {
    saved["per_layer_config"][layer] = {{"head_dim", 16}, {"num_key_value_heads", 1}};
  }
  const ModelDescription model = parse_gemma4(hub);
  EXPECT_EQ(model.plan[0].head_dim, 8);
  EXPECT_EQ(model.plan[0].kv_heads, 2);
  EXPECT_EQ(model.plan[0].values, ValueKind::kProjected);
  EXPECT_EQ(model.plan[1].head_dim, 16);
  EXPECT_EQ(model.plan[1].kv_heads, 1);
  EXPECT_EQ(model.plan[1].values, ValueKind::kRawKeys);
  EXPECT_EQ(model.plan[1].rope.rotated_pairs, 2);
  EXPECT_EQ(parse_gemma4(saved).plan, model.plan);
  EXPECT_EQ(parse_gemma4(saved).text, model.text);
}

TEST(Gemma4ConfigTest, SharedLayersReadTheLastOfTheirType) {
  json config = gemma4_keys();
  config.update(
      {{"num_hidden_layers", 6},
       {"layer_types", {kSlidingType, kFullType, kSlidingType, kFullType, kSlidingType, kFullType}},
       {"num_kv_shared_layers", 3},
       {"use_double_wide_mlp", true},
       {"attention_k_eq_v", true}});
  const auto plan = parse_gemma4(config).plan;
  const std::vector<int64_t> sources = {-1, -1, -1, 1, 2, 1};
  for (size_t layer = 0; layer < 6; ++layer) {
    EXPECT_EQ(plan[layer].kv_source, sources[layer]) << layer;
    EXPECT_EQ(plan[layer].intermediate_size, layer < 3 ? 48 : 96) << layer;
  }
  EXPECT_EQ(plan[1].values, ValueKind::kRawKeys);
  EXPECT_EQ(kv_projections(plan[1]), 1);
  EXPECT_EQ(kv_projections(plan[3]), 0);
}

TEST(Gemma4ConfigTest, SizesOfAListAreNotDoubled) {
  json config = gemma3n_keys();
  config["intermediate_size"] = {8, 16, 24, 32};
  EXPECT_EQ(parse_gemma4(config).plan[3].intermediate_size, 32);
  config["model_type"] = "gemma4_text";
  config["use_double_wide_mlp"] = true;
  EXPECT_EQ(parse_gemma4(config).plan[3].intermediate_size, 32);
}

TEST(Gemma4ConfigTest, ExpertsAndOwnInputs) {
  json config = gemma4_keys();
  config.update({{"enable_moe_block", true},
                 {"num_experts", 8},
                 {"top_k_experts", 3},
                 {"moe_intermediate_size", 12},
                 {"hidden_size_per_layer_input", 4},
                 {"vocab_size_per_layer_input", 100}});
  const ModelDescription model = parse_gemma4(config);
  EXPECT_EQ(model.plan[2].experts, (ExpertsPlan{.count = 8, .chosen = 3, .intermediate_size = 12}));
  EXPECT_EQ(model.plan[2].per_layer_size, 4);
  EXPECT_EQ(model.plan[2].per_layer_index, 2);
  EXPECT_EQ(model.config.per_layer_vocab, 100);
  config["hidden_size_per_layer_input"] = nullptr;
  EXPECT_EQ(parse_gemma4(config).config.per_layer_count, 0);
  config["hidden_size_per_layer_input"] = 0;
  EXPECT_EQ(parse_gemma4(config).config.per_layer_count, 0);
}

TEST(Gemma4ConfigTest, SparsityIsAShareOrDeviations) {
  json config = gemma3n_keys();
  config["activation_sparsity_pattern"] = {0.95, 0.5, 0.0, 0.0};
  const auto plan = parse_gemma4(config).plan;
  EXPECT_NEAR(*plan[0].sparsity_cut, 1.6448536269514722, 1e-12);
  EXPECT_NEAR(*plan[1].sparsity_cut, 0.0, 1e-12);
  EXPECT_FALSE(plan[2].sparsity_cut.has_value());
  config["activation_sparsity_pattern"] = 0.95;
  EXPECT_EQ(parse_gemma4(config).plan[3].sparsity_cut, plan[0].sparsity_cut);
  config["activation_sparsity_z"] = {1.5, 0.0, nullptr, nullptr};
  EXPECT_EQ(parse_gemma4(config).plan[0].sparsity_cut, 1.5);
  EXPECT_EQ(parse_gemma4(config).plan[1].sparsity_cut, 0.0);
  EXPECT_FALSE(parse_gemma4(config).plan[2].sparsity_cut.has_value());
}

TEST(Gemma4ConfigTest, AModelOfMoreThanTenLayersIsSparseUnlessItSaysOtherwise) {
  json config = gemma3n_keys();
  config.erase("layer_types");
  config["num_hidden_layers"] = 11;
  for (const bool null : {false, true}) {
    if (null) {
      config["activation_sparsity_pattern"] = nullptr;
    }
    const auto plan = parse_gemma4(config).plan;
    ASSERT_TRUE(plan[9].sparsity_cut.has_value());
    EXPECT_NEAR(*plan[9].sparsity_cut, 1.6448536269514722, 1e-12);
    EXPECT_FALSE(plan[10].sparsity_cut.has_value());
  }
  config["activation_sparsity_pattern"] = std::vector<double>(11, 0.0);
  EXPECT_FALSE(parse_gemma4(config).plan[0].sparsity_cut.has_value());
  config.erase("activation_sparsity_pattern");
  config["num_hidden_layers"] = 10;
  EXPECT_FALSE(parse_gemma4(config).plan[0].sparsity_cut.has_value());
}

TEST(Gemma4ConfigTest, AttentionMayHaveBiases) {
  for (json config : {gemma4_keys(), gemma3n_keys()}) {
    config["attention_bias"] = true;
    for (const LayerPlan& plan : parse_gemma4(config).plan) {
      EXPECT_TRUE(plan.qkv_bias && plan.output_bias && !plan.mlp_bias);
    }
  }
}

TEST(Gemma4ConfigTest, RopeParametersOfEachType) {
  json config = gemma4_keys();
  config["rope_parameters"] = {
      {kSlidingType, {{"rope_type", "linear"}, {"rope_theta", 500.0}, {"factor", 4.0}}},
      {kFullType,
       {{"rope_type", "proportional"}, {"rope_theta", 2e6}, {"partial_rotary_factor", 0.5}}}};
  const auto plan = parse_gemma4(config).plan;
  EXPECT_EQ(plan[0].rope, (RopeConfig{.theta = 500.0, .factor = 4.0}));
  EXPECT_EQ(plan[1].rope, (RopeConfig{.theta = 2e6, .rotated_pairs = 128}));
}

TEST(Gemma4ConfigTest, OldRopeKeysAreOfGemma3nAlone) {
  json old = gemma3n_keys();
  old.update({{"rope_theta", 500.0}, {"rope_local_base_freq", 70.0}});
  old["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  auto plan = parse_gemma4(old).plan;
  EXPECT_EQ(plan[0].rope, (RopeConfig{.theta = 70.0}));
  EXPECT_EQ(plan[1].rope, (RopeConfig{.theta = 500.0, .factor = 4.0}));
  json four = gemma4_keys();
  const auto release = parse_gemma4(four).plan;
  for (const char* key : {"rope_theta", "rope_local_base_freq", "rope_scaling"}) {
    four[key] = old[key];
  }
  EXPECT_EQ(parse_gemma4(four).plan, release);
  four["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(parse_gemma4(four).plan, release) << "also of another type";
}

TEST(Gemma4ConfigTest, AnOldScalingCompletesWhatGemma3nSaysOfFullLayers) {
  json config = gemma3n_keys();
  config["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"rope_theta", 5e4}}}};
  config["rope_scaling"] = {{"factor", 8.0}};
  EXPECT_EQ(parse_gemma4(config).plan[1].rope, (RopeConfig{.theta = 5e4, .factor = 8.0}));
}

TEST(Gemma4ConfigTest, RawValueLayersAreNamed) {
  json config = gemma4_keys();
  config["raw_value_layers"] = {0, 3};
  const auto plan = parse_gemma4(config).plan;
  EXPECT_EQ(plan[0].values, ValueKind::kRawKeys);
  EXPECT_EQ(plan[1].values, ValueKind::kProjected);
  EXPECT_EQ(plan[3].values, ValueKind::kRawKeys);
}

TEST(Gemma4ConfigTest, WrappersHoldATextModel) {
  json unified = gemma4_keys();
  unified["model_type"] = "gemma4_unified_text";
  for (const auto& [type, text] :
       {std::pair{"gemma3n", gemma3n_keys()}, std::pair{"gemma4", gemma4_keys()},
        std::pair{"gemma4_unified", unified}}) {
    json inner = text;
    inner.erase("model_type");
    const json wrapper = {{"model_type", type},
                          {"text_config", inner},
                          {"vision_config", {{"hidden_size", 5}}},
                          {"tie_word_embeddings", false},
                          {"eos_token_id", {1, 106}}};
    const ModelDescription model = parse_gemma4(wrapper);
    EXPECT_EQ(model.config.family, std::string(type) + "_text");
    EXPECT_EQ(model.plan, parse_gemma4(text).plan) << type;
    EXPECT_FALSE(model.config.tie_word_embeddings) << type;
    EXPECT_THAT(model.config.end_ids, testing::ElementsAre(1, 106)) << type;
    EXPECT_NE(model.text, parse_gemma4(text).text) << type;
  }
}

TEST(Gemma4ConfigTest, GenerationConfigReplacesTheEndTokens) {
  const TemporaryFolder folder;
  folder.write("config.json", gemma4_keys().dump());
  EXPECT_THAT(load_gemma4_config(folder.path()).config.end_ids, testing::ElementsAre(1));
  folder.write("generation_config.json", R"({"eos_token_id": [1, 106]})");
  EXPECT_THAT(load_gemma4_config(folder.path()).config.end_ids, testing::ElementsAre(1, 106));
}

TEST(Gemma4ConfigTest, BidirectionalImageTokensAreFine) {
  json config = gemma4_keys();
  for (const json& value : {json("vision"), json(nullptr), json(false)}) {
    config["use_bidirectional_attention"] = value;
    EXPECT_NO_THROW(parse_gemma4(config)) << value;
  }
}

TEST(Gemma4ConfigTest, AssistantLayersReadOthersKeysAndValues) {
  json config = gemma4_keys();
  const auto message = [&config] {
    return error_message<WeightsError>(
        [&config] { read_assistant_layers(JsonKeys(config, "config.json")); });
  };
  config["num_kv_shared_layers"] = 3;
  EXPECT_THAT(message(), HasSubstr("is 3, of 4 layers"));
  for (const json& layers :
       {json(4), json(0), json(nullptr)}) {  // 0: all, as transformers fills in
    config["num_kv_shared_layers"] = layers;
    for (const LayerPlan& plan : read_assistant_layers(JsonKeys(config, "config.json")).plan) {
      EXPECT_EQ(plan.kv_source, 0);
      EXPECT_EQ(kv_projections(plan), 0);
      EXPECT_EQ(plan.per_layer_size, 0);
    }
  }
}

TEST(Gemma4ConfigTest, KeysHaveTheNamesOfTheFile) {
  json config = gemma4_keys();
  config["sliding_window"] = 0;
  const std::string message = error_message<WeightsError>([&] {
    parse_gemma4_config(config.dump(), "a.gguf", {{"sliding_window", "gemma4.window"}});
  });
  EXPECT_THAT(message, testing::AllOf(HasSubstr("a.gguf"), HasSubstr("gemma4.window")));
}

struct WrongGemma4Config {
  std::string name;
  json changes;         ///< of a Gemma 4, or a 3n where they say so
  std::string message;  ///< a part of it
};
void PrintTo(const WrongGemma4Config& one, std::ostream* out) { *out << one.name; }

class WrongGemma4ConfigTest : public testing::TestWithParam<WrongGemma4Config> {};

TEST_P(WrongGemma4ConfigTest, IsRefused) {
  json config =
      GetParam().changes.value("model_type", "") == "gemma3n_text" ? gemma3n_keys() : gemma4_keys();
  config.update(GetParam().changes);
  const std::string message = error_message<WeightsError>([&config] { parse_gemma4(config); });
  EXPECT_THAT(message, testing::AllOf(HasSubstr("config.json"), HasSubstr(GetParam().message)));
}

/// Changes to a Gemma 3n.
json to_3n(json changes) {
  changes["model_type"] = "gemma3n_text";
  return changes;
}

json moe_keys(json changes) {
  json all = {{"enable_moe_block", true},
              {"num_experts", 4},
              {"top_k_experts", 2},
              {"moe_intermediate_size", 8}};
  all.update(changes);
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongGemma4ConfigTest,
    testing::Values(
        WrongGemma4Config{"type", {{"model_type", "gemma5"}}, "'gemma5'; supported: gemma3n_text"},
        WrongGemma4Config{"no_text", {{"model_type", "gemma4"}}, "text_config"},
        WrongGemma4Config{
            "layer_type",
            {{"layer_types", {kSlidingType, kFullType, "chunked_attention", kFullType}}},
            "\"chunked_attention\"; known: \"sliding_attention\""},
        WrongGemma4Config{
            "layer_types", {{"layer_types", {kSlidingType}}}, "a list of 4 layer types"},
        WrongGemma4Config{
            "layer_types_text", {{"layer_types", kFullType}}, "a list of 4 layer types"},
        WrongGemma4Config{"layers", {{"num_hidden_layers", 1025}}, "more than 1024"},
        WrongGemma4Config{"bias", {{"attention_bias", "all"}}, "attention_bias"},
        WrongGemma4Config{"activation", {{"hidden_activation", "silu"}}, "'silu'"},
        WrongGemma4Config{"bidirectional", {{"use_bidirectional_attention", "all"}}, "is \"all\""},
        WrongGemma4Config{"sharing", {{"num_kv_shared_layers", 4}}, "none is left"},
        WrongGemma4Config{"sharing_type",
                          {{"num_kv_shared_layers", 3}},
                          "no layer before them is of the type of layer 1"},
        WrongGemma4Config{
            "sharing_heads",
            {{"num_kv_shared_layers", 2}, {"per_layer_config", {{"3", {{"head_dim", 16}}}}}},
            "makes layer 3 read layer 1"},
        WrongGemma4Config{
            "negative_sharing", {{"num_kv_shared_layers", -1}}, "num_kv_shared_layers"},
        WrongGemma4Config{"head_dim", {{"head_dim", 7}}, "is 7 in layer 0"},
        WrongGemma4Config{"global_head_dim", {{"global_head_dim", 9}}, "is 9 in layer 1"},
        WrongGemma4Config{"kv_heads", {{"num_key_value_heads", 3}}, "does not divide the 4"},
        WrongGemma4Config{"layer_config",
                          {{"per_layer_config", {{"4", {{"head_dim", 16}}}}}},
                          "names layer 4, of 4 layers"},
        WrongGemma4Config{
            "layer_config_key", {{"per_layer_config", {{"1", {{"window", 16}}}}}}, "window"},
        WrongGemma4Config{"raw_values", {{"raw_value_layers", {-1}}}, "names layer -1"},
        WrongGemma4Config{"sizes", {{"intermediate_size", {8, 8}}}, "a size or a list of 4 sizes"},
        WrongGemma4Config{
            "size", {{"intermediate_size", {8, 8, 8, 0}}}, "a size or a list of 4 sizes"},
        WrongGemma4Config{"experts", moe_keys({{"top_k_experts", 5}}), "is 5, of 4 experts"},
        WrongGemma4Config{"no_experts", moe_keys({{"num_experts", nullptr}}), "num_experts"},
        WrongGemma4Config{"streams", to_3n({{"altup_num_inputs", 1}}), "supported: 2 to 8"},
        WrongGemma4Config{"many_streams", to_3n({{"altup_num_inputs", 9}}), "supported: 2 to 8"},
        WrongGemma4Config{"active", to_3n({{"altup_active_idx", 4}}), "is 4, of 4 streams"},
        WrongGemma4Config{"sparsity", to_3n({{"activation_sparsity_pattern", {0.5}}}),
                          "a list of 4 numbers"},
        WrongGemma4Config{"share", to_3n({{"activation_sparsity_pattern", 1.0}}), "below 1"},
        WrongGemma4Config{"deviations", to_3n({{"activation_sparsity_z", {1.0}}}),
                          "a list of 4 numbers"},
        WrongGemma4Config{"rope",
                          {{"rope_parameters", {{kFullType, {{"rope_type", "yarn"}}}}}},
                          "'yarn'; supported: default, linear, proportional"},
        WrongGemma4Config{
            "no_pairs",
            {{"rope_parameters",
              {{kFullType, {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.001}}}}}},
            "no pair is rotated"}),
    ParameterName());

}  // namespace
}  // namespace specdec
