#include "core/transformer/adapters/lora_config.h"

#include <gmock/gmock.h>

#include <cmath>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kQuery = "model.layers.3.self_attn.q_proj";
constexpr const char* kDown = "model.layers.12.mlp.down_proj";

LoraConfig parse(const std::string& keys) {
  return parse_lora_config(R"({"peft_type": "LORA", "r": 8, "lora_alpha": 16, )" + keys + "}",
                           "adapter_config.json");
}

std::string complaint(const std::string& keys) {
  return error_message<WeightsError>([&] { (void)parse(keys); });
}

TEST(LoraConfigTest, AListNamesEndingsOfPaths) {
  const LoraConfig config = parse(R"("target_modules": ["q_proj", "mlp.down_proj"])");
  EXPECT_TRUE(config.adapts(kQuery, 3));
  EXPECT_TRUE(config.adapts(kDown, 12));
  EXPECT_FALSE(config.adapts("model.layers.3.self_attn.my_q_proj", 3));
  EXPECT_FALSE(config.adapts("model.layers.3.self_attn.v_proj", 3));
}

TEST(LoraConfigTest, ATextIsARegularExpressionOfWholePaths) {
  const LoraConfig config = parse(R"("target_modules": ".*layers\\.[0-5]\\..*(q|down)_proj")");
  EXPECT_TRUE(config.adapts(kQuery, 3));
  EXPECT_FALSE(config.adapts(kDown, 12));
  EXPECT_FALSE(config.adapts(std::string(kQuery) + ".more", 3));
}

TEST(LoraConfigTest, AllLinearNamesAllButTheHead) {
  const LoraConfig config = parse(R"("target_modules": "all-linear")");
  EXPECT_TRUE(config.adapts(kQuery, 3));
  EXPECT_TRUE(config.adapts(kDown, 12));
  EXPECT_FALSE(config.adapts("lm_head", -1));
}

TEST(LoraConfigTest, LayersAndExclusionsNarrowTheModules) {
  const LoraConfig config = parse(
      R"("target_modules": ["q_proj", "down_proj"], "layers_to_transform": [3, 12],
         "layers_pattern": "layers", "exclude_modules": ["down_proj"])");
  EXPECT_TRUE(config.adapts(kQuery, 3));
  EXPECT_FALSE(config.adapts("model.layers.4.self_attn.q_proj", 4));
  EXPECT_FALSE(config.adapts(kDown, 12));
  EXPECT_TRUE(parse(R"("target_modules": ["q_proj"], "layers_to_transform": 3)").adapts(kQuery, 3));
}

TEST(LoraConfigTest, PatternsGiveModulesTheirOwnRanksAndAlphas) {
  const LoraConfig config = parse(
      R"("target_modules": ["q_proj", "down_proj"], "rank_pattern": {"q_proj": 2},
         "alpha_pattern": {"^model.layers.12.mlp.down_proj": 4})");
  EXPECT_EQ(config.rank_of(kQuery), 2);
  EXPECT_EQ(config.rank_of(kDown), 8);
  EXPECT_DOUBLE_EQ(config.factor_of(kQuery), 16.0 / 2);
  EXPECT_DOUBLE_EQ(config.factor_of(kDown), 4.0 / 8);
}

TEST(LoraConfigTest, RankStabilisedFactorsDivideByTheRoot) {
  const LoraConfig config = parse(R"("target_modules": ["q_proj"], "use_rslora": true)");
  EXPECT_DOUBLE_EQ(config.factor_of(kQuery), 16.0 / std::sqrt(8.0));
}

TEST(LoraConfigTest, PatternsThatDisagreeAreRefused) {
  const LoraConfig config =
      parse(R"("target_modules": ["q_proj"], "rank_pattern": {"q_proj": 2, "layers.3.*": 4})");
  EXPECT_THAT(error_message<WeightsError>([&] { (void)config.rank_of(kQuery); }),
              AllOf(HasSubstr("q_proj"), HasSubstr("layers.3.*"), HasSubstr("both fit")));
}

TEST(LoraConfigTest, WhatWouldBeLeftOutIsRefusedByName) {
  const std::string targets = R"("target_modules": ["q_proj"], )";
  for (const char* key :
       {R"("use_dora": true)", R"("lora_bias": true)", R"("modules_to_save": ["lm_head"])",
        R"("fan_in_fan_out": true)", R"("trainable_token_indices": [1])", R"("use_new": {"a": 1})",
        R"("target_parameters": ["experts.gate_up_proj"])", R"("layer_replication": [[0, 2]])"}) {
    const std::string name(key + 1, std::string(key).find('"', 1) - 1);
    EXPECT_THAT(complaint(targets + key), AllOf(HasSubstr(name), HasSubstr("not supported")));
  }
  EXPECT_THAT(complaint(targets + R"("bias": "all")"), HasSubstr("'bias' is 'all'"));
  EXPECT_THAT(complaint(targets + R"("init_lora_weights": "pissa_niter_4")"),
              HasSubstr("training changed the base's weights"));
  EXPECT_THAT(complaint(targets + R"("layers_to_transform": [1], "layers_pattern": ["h"])"),
              HasSubstr("layers_pattern"));
}

TEST(LoraConfigTest, HarmlessKeysAreTaken) {
  EXPECT_EQ(parse(R"("target_modules": ["q_proj"], "use_dora": false, "modules_to_save": null,
                     "lora_dropout": 0.1, "init_lora_weights": "gaussian", "unsloth_fixed": true,
                     "loftq_config": {})")
                .rank,
            8);
}

TEST(LoraConfigTest, MistakesAreNamed) {
  EXPECT_THAT(complaint(R"("target_modules": null)"), HasSubstr("target_modules"));
  EXPECT_THAT(complaint(R"("target_modules": [1])"), HasSubstr("list of modules' names"));
  EXPECT_THAT(complaint(R"("target_modules": "(?i)q_proj")"), HasSubstr("regular expression"));
  EXPECT_THAT(complaint(R"("target_modules": ["q_proj"], "rank_pattern": {"q_proj": 0})"),
              HasSubstr("q_proj"));
  EXPECT_THAT(
      error_message<WeightsError>([] { (void)parse_lora_config(R"({"peft_type": "IA3"})", "x"); }),
      HasSubstr("only LORA"));
}

}  // namespace
}  // namespace specdec
