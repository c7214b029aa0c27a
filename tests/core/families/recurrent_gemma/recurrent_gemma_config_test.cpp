#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/model.h"
#include "core/families/recurrent_gemma/config.h"
#include "core/formats/strict_json.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;

json golden_recurrent_json() {
  return json::parse(read_file(test_data("recurrentgemma-a") / "config.json"));
}

ModelDescription parse_recurrent(const json& config) {
  return parse_recurrent_gemma_config(config.dump(), "config.json");
}

TEST(RecurrentGemmaConfigTest, TheGoldenConfigIsRead) {
  const ModelDescription model = load_recurrent_gemma_config(test_data("recurrentgemma-a"));
  ASSERT_EQ(model.plan.size(), 4);
  EXPECT_TRUE(is_recurrent(model.plan[0]) && is_recurrent(model.plan[1]));
  EXPECT_FALSE(is_recurrent(model.plan[2]));
  EXPECT_TRUE(is_recurrent(model.plan[3])) << "the pattern begins again";
  EXPECT_EQ(model.plan[0].intermediate_size, 24) << "half of the config's";
  EXPECT_EQ(qkv_rows(model.plan[0]), 48);
  EXPECT_EQ(state_size(model.plan[0]), 4 * 24);
  EXPECT_EQ(qkv_rows(model.plan[2]), 24 + 2 * 12);
  EXPECT_EQ(state_size(model.plan[2]), 0);
  EXPECT_EQ(model.plan[2].window, 6);
  EXPECT_EQ(model.plan[2].rope.rotated_pairs, 3);
  EXPECT_EQ(model.plan[2].rope.exponent_dims, 6);
  EXPECT_DOUBLE_EQ(model.config.final_soft_cap, 12.0);
}

TEST(RecurrentGemmaConfigTest, TheConfigOfTheHubIsRead) {
  const ModelDescription model = parse_recurrent({{"model_type", "recurrent_gemma"},
                                                  {"num_key_value_heads", 1},
                                                  {"head_dim", 256},
                                                  {"intermediate_size", 15360},
                                                  {"lru_width", 2560},
                                                  {"rope_theta", 10000.0},
                                                  {"partial_rotary_factor", 0.5},
                                                  {"embeddings_scale_by_sqrt_dim", true}});
  EXPECT_EQ(model.config.num_layers, 26);
  EXPECT_EQ(std::count_if(model.plan.begin(), model.plan.end(), is_recurrent), 18);
  EXPECT_EQ(model.plan[2].window, 2048);
  EXPECT_EQ(model.plan[2].rope.rotated_pairs, 64);
  EXPECT_EQ(model.plan[0].intermediate_size, 7680);
  EXPECT_DOUBLE_EQ(model.config.final_soft_cap, 30.0);
}

TEST(RecurrentGemmaConfigTest, WhatMakesNoSenseNamesTheKey) {
  struct Bad {
    const char* key;
    json value;
    const char* message;
  };
  const Bad all[] = {{"block_types", {"recurrent", "mamba"}, "names 'mamba'"},
                     {"block_types", json::array(), "should be a list"},
                     {"block_types", "recurrent", "should be a list"},
                     {"lru_width", 25, "no multiple of the 2 heads"},
                     {"conv1d_width", 0, "conv1d_width"},
                     {"intermediate_size", 49, "half of it"},
                     {"num_attention_heads", 5, "should divide hidden_size 24"},
                     {"head_dim", 16, "12 dimensions"},
                     {"hidden_activation", "gelu", "supported: gelu_pytorch_tanh"},
                     {"quantization_config", {{"quant_method", "fp8"}}, "original checkpoint"},
                     {"attention_window_size", -1, "attention_window_size"},
                     {"rope_parameters", {{"rope_type", "yarn"}}, "supported: default"},
                     {"rope_parameters", {{"partial_rotary_factor", 0.25}}, "rotates 3"}};
  for (const Bad& bad : all) {
    json config = golden_recurrent_json();
    config[bad.key] = bad.value;
    const std::string error = error_message<WeightsError>([&] { parse_recurrent(config); });
    EXPECT_THAT(error, testing::HasSubstr("config.json"));
    EXPECT_THAT(error, testing::HasSubstr(bad.message)) << bad.key << ": " << bad.value.dump();
  }
}

TEST(RecurrentGemmaTensorsTest, ErrorsNameTensorsAsTheFileDoes) {
  const TemporaryFolder folder;
  json config = golden_recurrent_json();
  config["lru_width"] = 48;
  std::ofstream(folder.path() / "config.json") << config.dump();
  std::filesystem::copy_file(test_data("recurrentgemma-a") / "model.safetensors",
                             folder.path() / "model.safetensors");
  EXPECT_THAT(error_message<WeightsError>([&] { load_model(folder.path()); }),
              testing::HasSubstr("model.layers.0.temporal_block.linear_y.weight"));
  config = golden_recurrent_json();
  config["hidden_size"] = 32;
  config["head_dim"] = 16;
  std::ofstream(folder.path() / "config.json") << config.dump();
  EXPECT_THAT(error_message<WeightsError>([&] { load_model(folder.path()); }),
              testing::HasSubstr("embed_tokens"));
}

}  // namespace
}  // namespace specdec
