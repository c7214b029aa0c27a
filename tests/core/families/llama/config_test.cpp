#include "core/families/llama/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/model.h"
#include "core/transformer/rope_config.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::ElementsAre;

/// The smallest config of a model_type.
json smallest(const std::string& type) {
  return {{"model_type", type},       {"vocab_size", 100},      {"hidden_size", 48},
          {"intermediate_size", 96},  {"num_hidden_layers", 3}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"rms_norm_eps", 1e-5}};
}

ModelDescription parse_llama(const json& config) {
  return parse_llama_config(config.dump(), "config.json");
}

std::vector<int64_t> windows(const ModelDescription& model) {
  std::vector<int64_t> all;
  for (const LayerPlan& layer : model.plan) {
    all.push_back(layer.window);
  }
  return all;
}

TEST(LlamaConfigTest, MissingKeysHaveTheDefaultsOfTheirClass) {
  for (const std::string& type : llama_model_types()) {
    json config = smallest(type);
    config["num_attention_heads"] = 32;
    config["hidden_size"] = 2048;
    config.erase("num_key_value_heads");
    const ModelDescription model = parse_llama(config);
    EXPECT_FALSE(model.config.tie_word_embeddings) << type;
    EXPECT_EQ(model.plan[0].rope.theta, 1e4) << type;
    EXPECT_EQ(model.plan[0].kv_heads, type == "mistral" ? 8 : 32) << type;
    EXPECT_EQ(model.plan[0].head_dim, type == "qwen3" ? 128 : 64) << type;
    EXPECT_EQ(model.plan[0].qk_norm, type == "qwen3") << type;
    EXPECT_EQ(model.plan[0].qkv_bias, type == "qwen2") << type;
    EXPECT_FALSE(model.plan[0].output_bias) << type;
    EXPECT_EQ(model.plan[0].window, type == "mistral" ? 4096 : 0) << type;
    EXPECT_EQ(model.plan[0].activation, Activation::kSilu) << type;
    EXPECT_EQ(model.config.family, type);
    EXPECT_EQ(model.norm_offset, 0.0);
    EXPECT_FALSE(model.scaled_embedding);
  }
}

TEST(LlamaConfigTest, NullMeansAsManyKeyValueHeadsAsHeads) {
  for (const std::string& type : llama_model_types()) {
    json config = smallest(type);
    config["num_key_value_heads"] = nullptr;
    EXPECT_EQ(parse_llama(config).plan[0].kv_heads, 4) << type;
  }
}

TEST(LlamaConfigTest, AHeadDimCountsInEveryClass) {
  for (const std::string& type : llama_model_types()) {
    json config = smallest(type);
    config["head_dim"] = 20;
    EXPECT_EQ(parse_llama(config).plan[0].head_dim, 20) << type;
  }
}

TEST(LlamaConfigTest, AttentionBiasIsOfAllFour) {
  json config = smallest("llama");
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  const LayerPlan layer = parse_llama(config).plan[0];
  EXPECT_TRUE(layer.qkv_bias && layer.output_bias && layer.mlp_bias);
}

TEST(LlamaConfigTest, MistralsWindowMayBeNull) {
  json config = smallest("mistral");
  config["sliding_window"] = nullptr;
  EXPECT_THAT(windows(parse_llama(config)), ElementsAre(0, 0, 0));
  config["sliding_window"] = 7;
  EXPECT_THAT(windows(parse_llama(config)), ElementsAre(7, 7, 7));
}

TEST(LlamaConfigTest, MistralsLayersMayBeOfTwoTypes) {
  json config = smallest("mistral");
  config["sliding_window"] = 7;
  config["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(windows(parse_llama(config)), ElementsAre(0, 7, 0));
  config["layer_types"] = nullptr;
  EXPECT_THAT(windows(parse_llama(config)), ElementsAre(7, 7, 7));
}

TEST(LlamaConfigTest, QwensWindowIsIgnoredUnlessUsed) {
  json config = smallest("qwen2");
  config["sliding_window"] = 6;
  config["max_window_layers"] = 2;
  EXPECT_THAT(windows(parse_llama(config)), ElementsAre(0, 0, 0));
  config["use_sliding_window"] = true;
  EXPECT_THAT(windows(parse_llama(config)), ElementsAre(0, 0, 6));
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(windows(parse_llama(config)), ElementsAre(6, 0, 0));
  config.erase("layer_types");
  config["sliding_window"] = nullptr;
  EXPECT_THAT(windows(parse_llama(config)), ElementsAre(0, 0, 0));
}

TEST(LlamaConfigTest, RotationsOfOldAndNewStyle) {
  json config = smallest("llama");
  config["rope_theta"] = 5e5;
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(parse_llama(config).plan[0].rope, (RopeConfig{.theta = 5e5, .factor = 4.0}));
  config["rope_scaling"] = nullptr;
  EXPECT_EQ(parse_llama(config).plan[0].rope, (RopeConfig{.theta = 5e5}));
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 2e5}};
  EXPECT_EQ(parse_llama(config).plan[0].rope, (RopeConfig{.theta = 2e5}));
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(parse_llama(config).plan[0].rope, (RopeConfig{.theta = 1e4, .factor = 2.0}));
}

TEST(LlamaConfigTest, AnEmptyScalingIsNone) {
  json config = smallest("llama");
  config["rope_scaling"] = json::object();
  config["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5e4}};
  EXPECT_EQ(parse_llama(config).plan[0].rope, (RopeConfig{.theta = 5e4, .factor = 2.0}));
}

TEST(LlamaConfigTest, OriginalPositionsBesideTheScalingCountMore) {
  json config = smallest("llama");
  config["rope_scaling"] = {
      {"rope_type", "llama3"}, {"factor", 8.0}, {"original_max_position_embeddings", 4096}};
  config["original_max_position_embeddings"] = 64;
  EXPECT_EQ(parse_llama(config).plan[0].rope.divisors,
            llama3_divisors({.factor = 8.0, .original_positions = 64.0}, 1e4, 12));
}

TEST(LlamaConfigTest, Llama3ScalingHasThreeBands) {
  const auto divisors = llama3_divisors({.factor = 8.0, .original_positions = 64.0}, 5000.0, 12);
  ASSERT_EQ(divisors.size(), 6U);
  EXPECT_EQ(divisors.front(), 1.0);
  EXPECT_EQ(divisors.back(), 8.0);
  const double waves = 64.0 * std::pow(5000.0, -2.0 / 12.0) / (2.0 * M_PI);
  const double share = (waves - 1.0) / 3.0;
  ASSERT_TRUE(share > 0.0 && share < 1.0);
  EXPECT_DOUBLE_EQ(divisors[1], 1.0 / ((1.0 - share) / 8.0 + share));
}

TEST(LlamaConfigTest, EndTokensOfBothFilesCount) {
  const TemporaryFolder folder;
  json config = smallest("llama");
  config["eos_token_id"] = {2, 3};
  std::ofstream(folder.path() / "config.json") << config;
  std::ofstream(folder.path() / "generation_config.json") << R"({"eos_token_id": [3, 5, 500]})";
  EXPECT_THAT(describe_model(folder.path()).config.end_ids, ElementsAre(2, 3, 5));
}

TEST(LlamaConfigTest, NullMeansNoEndToken) {
  for (const std::string& type : llama_model_types()) {
    const TemporaryFolder folder;
    json config = smallest(type);
    const bool has_default = type == "llama" || type == "mistral";
    EXPECT_EQ(parse_llama(config).config.end_ids.size(), has_default ? 1U : 0U) << type;
    config["eos_token_id"] = nullptr;
    EXPECT_THAT(parse_llama(config).config.end_ids, testing::IsEmpty()) << type;
    std::ofstream(folder.path() / "config.json") << config;
    std::ofstream(folder.path() / "generation_config.json") << R"({"eos_token_id": 5})";
    EXPECT_THAT(describe_model(folder.path()).config.end_ids, ElementsAre(5)) << type;
  }
}

TEST(LlamaConfigTest, BeginningTokensAreOfTheVocabulary) {
  json config = smallest("llama");
  const auto bos = [&config](const json& value) {
    config["bos_token_id"] = value;
    return parse_llama(config).config.bos_id;
  };
  EXPECT_EQ(bos(7), 7);
  EXPECT_EQ(bos({8, 9}), 8);
  EXPECT_EQ(bos(nullptr), -1);
  EXPECT_EQ(parse_llama(smallest("llama")).config.bos_id, 1);
  EXPECT_EQ(bos(100), -1);
  EXPECT_EQ(bos(int64_t{4294967298}), -1);
}

TEST(LlamaConfigTest, UnknownFamiliesAreToldTheKnownOnes) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "config.json") << R"({"model_type": "mamba"})";
  try {
    describe_model(folder.path());
    FAIL() << "accepted";
  } catch (const WeightsError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("'mamba'; known: gemma, gemma2, vaultgemma, "
                                   "gemma3_text, gemma3, gemma3n_text, gemma3n, gemma4_text, "
                                   "gemma4, gemma4_unified_text, gemma4_unified, "
                                   "llama, mistral, qwen2, qwen3"));
  }
}

struct BadLlamaConfig {
  const char* type;
  const char* key;
  json value;
  const char* message;
};

void PrintTo(const BadLlamaConfig& one, std::ostream* out) {
  *out << one.type << ' ' << one.key << ": " << one.value.dump();
}

class LlamaConfigErrorTest : public testing::TestWithParam<BadLlamaConfig> {};

TEST_P(LlamaConfigErrorTest, NamesFileAndKey) {
  json config = smallest(GetParam().type);
  config[GetParam().key] = GetParam().value;
  try {
    parse_llama(config);
    FAIL() << "accepted";
  } catch (const WeightsError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("config.json"));
    EXPECT_THAT(error.what(), testing::HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LlamaConfigErrorTest,
    testing::Values(
        BadLlamaConfig{"llama", "hidden_size", nullptr, "'hidden_size' is missing"},
        BadLlamaConfig{"llama", "num_attention_heads", 5, "does not divide"},
        BadLlamaConfig{"llama", "num_key_value_heads", 3, "does not divide the 4"},
        BadLlamaConfig{"llama", "head_dim", 7, "even number"},
        BadLlamaConfig{"llama", "hidden_act", "gelu", "'hidden_act' is 'gelu'"},
        BadLlamaConfig{"llama", "num_hidden_layers", 5000, "more than 1024"},
        BadLlamaConfig{"llama", "eos_token_id", "end", "eos_token_id"},
        BadLlamaConfig{"llama", "bos_token_id", -7, "'bos_token_id' should be a token id"},
        BadLlamaConfig{"llama", "rope_scaling", json::parse(R"({"rope_type": "yarn"})"),
                       "'yarn'; supported: default, linear, llama3"},
        BadLlamaConfig{"qwen2", "rope_scaling", json::parse(R"({"type": "dynamic"})"), "'dynamic'"},
        BadLlamaConfig{"qwen3", "rope_parameters", json::parse(R"({"rope_type": "longrope"})"),
                       "'longrope'"},
        BadLlamaConfig{"llama", "rope_scaling", json::parse(R"({"rope_type": "llama3"})"),
                       "'factor' is missing"},
        BadLlamaConfig{
            "llama", "rope_scaling",
            json::parse(R"({"rope_type": "llama3", "factor": 8, "high_freq_factor": 1})"),
            "high_freq_factor"},
        BadLlamaConfig{"llama", "partial_rotary_factor", 0.5, "'partial_rotary_factor' is 0.5"},
        BadLlamaConfig{"qwen3", "rope_parameters",
                       json::parse(R"({"partial_rotary_factor": 0.25})"),
                       "'partial_rotary_factor' is 0.25"},
        BadLlamaConfig{"qwen2", "rope_parameters",
                       json::parse(R"({"full_attention": {"rope_theta": 7.0}})"),
                       "'full_attention' gives layers of this type a rotation"},
        BadLlamaConfig{"llama", "quantization_config", json::parse(R"({"quant_method": "aqlm"})"),
                       "quantised (quant_method 'aqlm')"},
        BadLlamaConfig{"mistral", "sliding_window", 0, "'sliding_window'"},
        BadLlamaConfig{"qwen2", "layer_types", json::array({"full_attention"}), "list of 3"},
        BadLlamaConfig{"mistral", "layer_types", json::array({"full_attention"}), "list of 3"},
        BadLlamaConfig{"qwen3", "layer_types",
                       json::array({"full_attention", "sliding_attention", "full_attention"}),
                       "use_sliding_window is false"}),
    ParameterName());

TEST(UnsupportedModelTest, IsNamedForWhatItIs) {
  const auto complaint = [](const std::string& file, const std::string& text) {
    const TemporaryFolder folder;
    folder.write(file, text);
    return error_message<WeightsError>([&] { open_model(folder.path()); });
  };
  using testing::HasSubstr;
  EXPECT_THAT(complaint("config.json", R"({"model_type": "gemma4_assistant"})"),
              HasSubstr("is 'gemma4_assistant' (Gemma 4's MTP drafter, no model by itself"));
  EXPECT_THAT(complaint("config.json", R"({"model_type": "mamba"})"),
              HasSubstr("is 'mamba'; known:"));
  EXPECT_THAT(complaint("adapter_config.json", "{}"),
              testing::AllOf(HasSubstr("holds an adapter (LoRA"), HasSubstr("--adapter"),
                             HasSubstr("merge_and_unload")));
}

}  // namespace
}  // namespace specdec
