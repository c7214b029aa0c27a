#include "core/families/gemma/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "core/families/unsupported_models.h"
#include "core/transformer/plan.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

using nlohmann::json;

json gemma3_json() { return json::parse(load_gemma_config(test_data("gemma3-a")).text); }

ModelDescription parse(const json& config) {
  return parse_gemma_config(config.dump(), "config.json");
}

std::vector<bool> sliding_layers(const ModelDescription& model) {
  std::vector<bool> sliding;
  for (const LayerPlan& layer : model.plan) {
    sliding.push_back(layer.window > 0);
  }
  return sliding;
}

/// Rotation of the first layer of its kind.
RopeConfig rope(const ModelDescription& model, bool sliding) {
  return std::find_if(model.plan.begin(), model.plan.end(),
                      [sliding](const LayerPlan& layer) { return (layer.window > 0) == sliding; })
      ->rope;
}

TEST(GemmaConfigTest, OldGemma1Style) {
  const ModelDescription model = load_gemma_config(test_data("gemma-a"));
  EXPECT_EQ(model.config.family, "gemma");
  EXPECT_DOUBLE_EQ(model.plan[0].query_scale, 0.25);
  EXPECT_THAT(sliding_layers(model), testing::Each(false));
  EXPECT_THAT(model.config.end_ids, testing::ElementsAre(1));
}

TEST(GemmaConfigTest, Gemma2CapsAndPattern) {
  const ModelDescription model = load_gemma_config(test_data("gemma2-a"));
  EXPECT_DOUBLE_EQ(model.plan[0].soft_cap, 4.0);
  EXPECT_DOUBLE_EQ(model.config.final_soft_cap, 6.0);
  EXPECT_THAT(sliding_layers(model), testing::ElementsAre(true, false, true, false));
  EXPECT_EQ(model.plan[0].window, 6);
  EXPECT_EQ(model.plan[1].window, 0);
}

TEST(GemmaConfigTest, VaultGemmaIsGemma2WithoutPostNorms) {
  const ModelDescription model = load_gemma_config(test_data("vaultgemma-a"));
  EXPECT_FALSE(model.plan[0].post_norms);
  EXPECT_FALSE(model.plan[0].qk_norm);
  EXPECT_EQ(model.mlp_norm, "pre_feedforward_layernorm");
  EXPECT_DOUBLE_EQ(model.plan[0].query_scale, 1.0 / std::sqrt(12.0));
  EXPECT_DOUBLE_EQ(model.plan[0].soft_cap, 0.0);  // null
  EXPECT_DOUBLE_EQ(model.config.final_soft_cap, 20.0);
  EXPECT_THAT(sliding_layers(model), testing::ElementsAre(true, false, true));
  json config = json::parse(model.text);
  config.erase("layer_types");
  config.erase("attn_logit_softcapping");
  EXPECT_THAT(sliding_layers(parse(config)), testing::ElementsAre(true, false, true));
  EXPECT_DOUBLE_EQ(parse(config).plan[0].soft_cap, 50.0);
}

TEST(GemmaConfigTest, FamiliesThatAreNotReadAreExplained) {
  EXPECT_THAT(unsupported_family("recurrentgemma"),
              testing::HasSubstr("name the folder of the hub"));
  EXPECT_THAT(unsupported_family("t5gemma"), testing::HasSubstr("an encoder and a decoder"));
  EXPECT_EQ(unsupported_family("phi3"), "");
}

TEST(GemmaConfigTest, Gemma2CapsMissingOrNull) {
  json config = json::parse(load_gemma_config(test_data("gemma2-a")).text);
  config.erase("attn_logit_softcapping");
  config["final_logit_softcapping"] = nullptr;
  EXPECT_DOUBLE_EQ(parse(config).plan[0].soft_cap, 50.0);
  EXPECT_DOUBLE_EQ(parse(config).config.final_soft_cap, 0.0);
}

TEST(GemmaConfigTest, WrapperFillsDefaultsAndReadsOldRope) {
  const ModelDescription model = load_gemma_config(test_data("wrapper"));
  EXPECT_EQ(model.config.family, "gemma3_text");
  EXPECT_THAT(sliding_layers(model),
              testing::ElementsAre(true, true, true, true, true, false, true));
  EXPECT_DOUBLE_EQ(rope(model, false).factor, 8.0);
  EXPECT_DOUBLE_EQ(rope(model, false).theta, 1e6);
  EXPECT_DOUBLE_EQ(rope(model, true).factor, 1.0);
  EXPECT_DOUBLE_EQ(rope(model, true).theta, 1e4);
  EXPECT_THAT(model.config.end_ids, testing::ElementsAre(1, 3));
}

TEST(GemmaConfigTest, HubWrapperMayOmitAlmostEverything) {
  const json hub = {{"model_type", "gemma3"},
                    {"text_config",
                     {{"hidden_size", 2560},
                      {"intermediate_size", 10240},
                      {"num_hidden_layers", 34},
                      {"model_type", "gemma3_text"},
                      {"sliding_window", 1024},
                      {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}}}}};
  const ModelDescription model = parse(hub);
  EXPECT_EQ(model.config.vocab_size, 262208);
  EXPECT_EQ(model.plan[0].head_dim, 256);
  EXPECT_EQ(model.plan[0].heads, 8);
  EXPECT_EQ(model.plan[0].kv_heads, 4);
  EXPECT_DOUBLE_EQ(model.plan[0].query_scale, 1.0 / 16.0);
  EXPECT_TRUE(model.config.tie_word_embeddings);
}

TEST(GemmaConfigTest, TheWrapperHasTheHead) {
  json hub = {{"model_type", "gemma3"}, {"text_config", gemma3_json()}};
  hub["text_config"]["tie_word_embeddings"] = false;
  hub["text_config"]["final_logit_softcapping"] = 30.0;
  EXPECT_TRUE(parse(hub).config.tie_word_embeddings);
  EXPECT_EQ(parse(hub).config.final_soft_cap, 0.0);
  EXPECT_EQ(parse(hub["text_config"]).config.final_soft_cap, 30.0);
  hub["tie_word_embeddings"] = false;
  EXPECT_FALSE(parse(hub).config.tie_word_embeddings);
}

TEST(GemmaConfigTest, ThePatternThatTransformersOnlyWritesIsNotRead) {
  json config = gemma3_json();
  config.erase("layer_types");
  config["_sliding_window_pattern"] = 2;
  EXPECT_THAT(sliding_layers(parse(config)),
              testing::ElementsAre(true, true, true, true, true, false));
}

TEST(GemmaConfigTest, OldGemma3Keys) {
  json config = gemma3_json();
  config.erase("layer_types");
  config.erase("rope_parameters");
  config["sliding_window_pattern"] = 2;
  config["rope_theta"] = 500000.0;
  config["rope_local_base_freq"] = 20000.0;
  const ModelDescription parsed = parse(config);
  EXPECT_THAT(sliding_layers(parsed), testing::ElementsAre(true, false, true, false, true, false));
  EXPECT_DOUBLE_EQ(rope(parsed, false).theta, 500000.0);
  EXPECT_DOUBLE_EQ(rope(parsed, true).theta, 20000.0);
}

TEST(GemmaConfigTest, AnOldScalingIsOfTheFullLayers) {
  json config = gemma3_json();
  config["rope_parameters"] = {{"full_attention", {{"rope_theta", 5e4}}}};
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  config["rope_theta"] = 7e4;
  EXPECT_EQ(rope(parse(config), false), (RopeConfig{.theta = 5e4, .factor = 4.0}));
  EXPECT_EQ(rope(parse(config), true), (RopeConfig{.theta = 1e4}));
}

TEST(GemmaConfigTest, AnOldScalingReplacesSingleKeysOfTheFullLayers) {
  json config = gemma3_json();
  config["rope_parameters"] = {
      {"full_attention", {{"rope_theta", 5e4}, {"rope_type", "linear"}, {"factor", 8.0}}}};
  config["rope_scaling"] = {{"factor", 4.0}};
  EXPECT_EQ(rope(parse(config), false), (RopeConfig{.theta = 5e4, .factor = 4.0}));
  config["rope_scaling"] = {{"rope_type", "linear"}, {"rope_theta", 3e4}};
  EXPECT_EQ(rope(parse(config), false), (RopeConfig{.theta = 3e4, .factor = 8.0}));
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(rope(parse(config), false), (RopeConfig{.theta = 5e4, .factor = 2.0}));
  config["rope_parameters"] = {{"full_attention", {{"rope_type", "yarn"}, {"rope_theta", 5e4}}}};
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  EXPECT_EQ(rope(parse(config), false), (RopeConfig{.theta = 5e4, .factor = 8.0}));
}

TEST(GemmaConfigTest, AnOldScalingOfAnotherTypeIsRefused) {
  json config = gemma3_json();
  for (const json& entry : {json{{"rope_type", "default"}}, json{{"rope_theta", 5e4}}}) {
    config["rope_parameters"] = {{"full_attention", entry}};
    config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
    try {
      parse(config);
      ADD_FAILURE() << "taken: " << entry.dump();
    } catch (const WeightsError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("rope_scaling: 'type' is 'linear', but "
                                                   "rope_parameters gives full layers the "
                                                   "rope_type 'default'"));
    }
  }
}

TEST(GemmaConfigTest, AttentionMayHaveBiases) {
  json config = gemma3_json();
  EXPECT_FALSE(parse(config).plan[0].qkv_bias);
  config["attention_bias"] = true;
  const ModelDescription model = parse(config);
  EXPECT_TRUE(model.plan[0].qkv_bias && model.plan[0].output_bias);
  EXPECT_FALSE(model.plan[0].mlp_bias);
  EXPECT_EQ(parse(json::parse(model.text)).plan, model.plan);
}

TEST(GemmaConfigTest, AMissingWindowIsTheClasssOwn) {
  json config = gemma3_json();
  config.erase("sliding_window");
  EXPECT_EQ(parse(config).config.sliding_window, 4096);
}

TEST(GemmaConfigTest, SpellingsOfTheTanhForm) {
  json config = gemma3_json();
  config["hidden_act"] = "gelu";  // not read
  for (const char* name : {"gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_python_tanh"}) {
    config["hidden_activation"] = name;
    EXPECT_NO_THROW(parse(config)) << name;
  }
}

TEST(GemmaConfigTest, BidirectionalHalvesTheWindow) {
  json config = gemma3_json();
  config["use_bidirectional_attention"] = true;
  config["sliding_window"] = 512;
  EXPECT_EQ(parse(config).config.sliding_window, 257);
}

TEST(GemmaConfigTest, WritesWholeNumbersAsTransformersReadsThem) {
  ModelDescription model = load_gemma_config(test_data("gemma3-a"));
  const auto scalar = [&model](double scale) {
    model.plan[0].query_scale = scale;
    return json::parse(gemma_config_json(model, "float32"))["query_pre_attn_scalar"];
  };
  EXPECT_TRUE(scalar(0.125).is_number_integer());
  EXPECT_TRUE(scalar(0.3).is_number_float());
}

TEST(GemmaConfigTest, WrittenConfigsAreReadBack) {
  std::vector<std::string> names = gemma_golden_names();
  names.emplace_back("vaultgemma-a");
  for (const std::string& name : names) {
    const ModelDescription model = load_gemma_config(test_data(name));
    const ModelDescription again = parse_gemma_config(model.text, "config.json");
    EXPECT_EQ(again.text, model.text) << name;
    EXPECT_EQ(again.plan, model.plan) << name;
  }
}

struct BadConfig {
  const char* key;
  json value;
  const char* message;
};

void PrintTo(const BadConfig& one, std::ostream* out) {
  *out << one.key << ": " << one.value.dump();
}

class GemmaConfigErrorTest : public testing::TestWithParam<BadConfig> {};

TEST_P(GemmaConfigErrorTest, NamesFileAndKey) {
  json config = gemma3_json();
  if (GetParam().value.is_discarded()) {
    config.erase(GetParam().key);
  } else {
    config[GetParam().key] = GetParam().value;
  }
  try {
    parse(config);
    FAIL() << "accepted";
  } catch (const WeightsError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("config.json"));
    EXPECT_THAT(error.what(), testing::HasSubstr(GetParam().key));
    EXPECT_THAT(error.what(), testing::HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GemmaConfigErrorTest,
    testing::Values(
        BadConfig{"hidden_size", json(json::value_t::discarded), "missing"},
        BadConfig{"hidden_size", "64", "integer"}, BadConfig{"hidden_size", -1, "should lie in"},
        BadConfig{"hidden_size", 1e300, "integer"},
        BadConfig{"hidden_size", 18446744073709551615ULL, "out of range"},
        BadConfig{"num_hidden_layers", 0, "should lie in"},
        BadConfig{"num_key_value_heads", 3, "divide"}, BadConfig{"head_dim", 23, "even"},
        BadConfig{"model_type", "llama", "supported"}, BadConfig{"model_type", 3, "string"},
        BadConfig{"layer_types", json::array({"full_attention"}), "list of 6"},
        BadConfig{"layer_types", json::array({"a", "b", "c", "d", "e", "f"}), "known"},
        BadConfig{"rms_norm_eps", "tiny", "number"}, BadConfig{"rms_norm_eps", 0.0, "positive"},
        BadConfig{"rms_norm_eps", 1e300, "out of range"},
        BadConfig{"rms_norm_eps", 1.5, "at most 1"},
        BadConfig{"query_pre_attn_scalar", 1e-320, "out of range"},
        BadConfig{"attention_bias", 1, "true or false"},
        BadConfig{"hidden_activation", "silu", "gelu_pytorch_tanh"},
        BadConfig{"hidden_activation", "gelu", "gelu_pytorch_tanh"},  // the exact one
        BadConfig{"sliding_window", nullptr, "missing: it is null"},
        BadConfig{"quantization_config", json::parse(R"({"quant_method": "aqlm"})"), "'aqlm'"},
        BadConfig{"rope_parameters", json::parse(R"({"rope_type": "linear", "factor": 2.0})"),
                  "known: full_attention, sliding_attention"},
        BadConfig{
            "rope_scaling",
            json::parse(R"({"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5})"),
            "partial_rotary_factor"},
        BadConfig{"tie_word_embeddings", "yes", "true or false"},
        BadConfig{"eos_token_id", json::array({1, "x"}), "token id"},
        BadConfig{"bos_token_id", "x", "token id"}, BadConfig{"sliding_window", 0, "should lie in"},
        BadConfig{"rope_parameters", json::parse(R"({"full_attention": {"rope_type": "yarn"}})"),
                  "linear"},
        BadConfig{"query_pre_attn_scalar", -3, "positive"}),
    ParameterName());

TEST(GemmaConfigTest, DamagedFilesAreErrors) {
  EXPECT_THROW(parse_gemma_config("", "config.json"), WeightsError);
  EXPECT_THROW(parse_gemma_config("[1, 2]", "config.json"), WeightsError);
  EXPECT_THROW(parse_gemma_config("{\"model_type\": ", "config.json"), WeightsError);
  EXPECT_THROW(load_gemma_config("no/such/folder"), WeightsError);
}

}  // namespace
}  // namespace specdec
