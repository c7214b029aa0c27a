// Checkpoints of compressed-tensors; tests/data/compressed/make_compressed makes them with torch,
// make_bitsandbytes those of bitsandbytes, make_mlx those of MLX, make_torchao those of torchao.
#include "core/formats/quantised/compressed_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/formats/float_values.h"
#include "core/formats/gguf/gguf_blocks.h"
#include "core/formats/strict_json.h"
#include "tests/support/error_message.h"
#include "tests/support/parameter_name.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::filesystem::path compressed(const std::string& name) {
  return std::filesystem::path(SPECDEC_SOURCE_DIR) / "tests/data/compressed" / name;
}

json config_json(const std::string& name) {
  return json::parse(read_file(compressed(name) / "config.json"));
}

CompressionScheme scheme_of(const std::string& name) {
  return *parse_compression(config_json(name).dump(), "config.json").value().find("layer");
}

/// Values of an entry in blocks or as float32.
std::vector<float> values_of(const TensorFiles& tensors, const TensorEntry& entry) {
  tensors.provide(entry);
  if (!is_block(entry.dtype)) {
    return float_values(entry);
  }
  std::vector<float> values(static_cast<size_t>(entry.shape[0] * entry.shape[1]));
  dequantize(entry.dtype, entry.bytes.data(), std::ssize(values), values.data());
  return values;
}

class CompressedTensorsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CompressedTensorsTest, ValuesAreTorchs) {
  const auto stored = std::make_shared<const CheckpointTensors>(compressed(GetParam()));
  const CompressedTensors tensors(stored, scheme_of(GetParam()));
  const CheckpointTensors wanted(compressed(GetParam()), "expected.safetensors");
  const TensorEntry* values = tensors.find("layer.weight");
  const TensorEntry* expected = wanted.find("layer.weight");
  ASSERT_NE(values, nullptr);
  EXPECT_EQ(values->shape, expected->shape);
  EXPECT_TRUE(values->bytes.empty());
  EXPECT_EQ(values_of(tensors, *values), float_values(*expected));
  EXPECT_EQ(tensors.find("layer.weight"), values);
  tensors.release(*values, 0, 1);
  EXPECT_FALSE(values->bytes.empty());
  tensors.release(*values);
  EXPECT_TRUE(values->bytes.empty());
  EXPECT_EQ(values_of(tensors, *values), float_values(*expected));
}

TEST_P(CompressedTensorsTest, OtherTensorsAreTheFiles) {
  const auto stored = std::make_shared<const CheckpointTensors>(compressed(GetParam()));
  const CompressedTensors tensors(stored, scheme_of(GetParam()));
  std::vector<std::string> names;
  for (const TensorEntry* entry : tensors.tensors()) {
    names.push_back(entry->name);
  }
  EXPECT_THAT(names, ElementsAre("norm.weight", "layer.weight"));
  EXPECT_EQ(tensors.find("norm.weight"), stored->find("norm.weight"));
  EXPECT_EQ(tensors.find("other"), nullptr);
  tensors.release(*tensors.find("norm.weight"));
}

INSTANTIATE_TEST_SUITE_P(
    All, CompressedTensorsTest,
    ::testing::Values("w4a16", "w4a16_asymmetric", "w4a16_channel", "w8a16", "int8", "fp8_channel",
                      "fp8_block", "fp8_tensor", "bnb_nf4", "bnb_nf4_nested", "bnb_fp4", "bnb_int8",
                      "mlx_2", "mlx_3", "mlx_4", "mlx_4_float32", "mlx_5", "mlx_6", "mlx_8",
                      "mlx_6_64", "mlx_8_64", "mlx_mxfp4", "mlx_mxfp8", "mlx_nvfp4",
                      "torchao_int4_tiles", "torchao_int4_awq", "torchao_int4", "torchao_fp8_rows",
                      "torchao_fp8_tensor", "torchao_intx4_asymmetric", "torchao_intx8",
                      "torchao_int8_old", "torchao_8da4w_old", "torchao_fp8_old", "torchao_int8"),
    ParameterName());

TEST(Float8Test, HasNoInfinitiesAndGoesTo448) {
  EXPECT_EQ(float8_value(0x7E), 448.0F);
  EXPECT_EQ(float8_value(0xFE), -448.0F);
  EXPECT_EQ(float8_value(0x01), 0x1p-9F);
  EXPECT_EQ(float8_value(0x08), 0x1p-6F);
  EXPECT_EQ(float8_value(0x38), 1.0F);
  EXPECT_TRUE(std::signbit(float8_value(0x80)));
  EXPECT_TRUE(std::isnan(float8_value(0x7F)));
  EXPECT_TRUE(std::isnan(float8_value(0xFF)));
}

TEST(CompressionSchemeTest, SaysHowWeightsAreStored) {
  using Codes = CompressionScheme::Codes;
  EXPECT_EQ(scheme_of("w4a16"), (CompressionScheme{.codes = Codes::kPacked,
                                                   .bits = 4,
                                                   .symmetric = true,
                                                   .rows_per_scale = 1,
                                                   .columns_per_scale = 32}));
  EXPECT_EQ(scheme_of("fp8_block"), (CompressionScheme{.codes = Codes::kFloat8,
                                                       .bits = 8,
                                                       .symmetric = true,
                                                       .rows_per_scale = 4,
                                                       .columns_per_scale = 8}));
  EXPECT_EQ(parse_compression("{}", "config.json"), std::nullopt);
}

/// What is said of w4a16's config with one change.
std::string scheme_complaint(const std::function<void(json& config, json& weights)>& change) {
  json config = config_json("w4a16");
  json& keys = config["quantization_config"];
  change(keys, keys["config_groups"]["group_0"]["weights"]);
  return error_message<WeightsError>(
      [&] { (void)parse_compression(config.dump(), "config.json"); });
}

TEST(CompressionSchemeTest, WhatIsNotSupportedIsNamed) {
  EXPECT_EQ(scheme_complaint([](json&, json&) {}), "no error");
  EXPECT_THAT(
      scheme_complaint([](json& keys, json&) { keys["quant_method"] = "aqlm"; }),
      HasSubstr("is 'aqlm', which is not supported; known: compressed-tensors, fp8, modelopt, "
                "gptq, awq, bitsandbytes, torchao. Use"));
  EXPECT_THAT(scheme_complaint([](json& keys, json&) { keys["format"] = "nvfp4-pack-quantized"; }),
              HasSubstr("is 'nvfp4-pack-quantized' with weights of type 'int'"));
  EXPECT_THAT(scheme_complaint([](json&, json& weights) { weights["num_bits"] = 3; }),
              HasSubstr("is 3, which is not supported in format pack-quantized; known: 2, 4, 8"));
  EXPECT_THAT(
      scheme_complaint([](json&, json& weights) { weights["strategy"] = "token"; }),
      HasSubstr("is 'token', which is not supported; known: tensor, channel, group, block"));
  EXPECT_THAT(scheme_complaint([](json&, json& weights) {
                weights["strategy"] = "block";
                weights["block_structure"] = {128};
              }),
              HasSubstr("should be the rows and columns of a block"));
  EXPECT_THAT(scheme_complaint([](json& keys, json&) {
                keys["config_groups"]["group_0"]["targets"] = {"re:(mlp"};
              }),
              HasSubstr("config_groups: group_0: 'targets' is no expression: missing closing "
                        "parenthesis at byte 4 of '(mlp'"));
  EXPECT_THAT(scheme_complaint(
                  [](json& keys, json&) { keys["config_groups"]["group_0"]["targets"] = {3}; }),
              HasSubstr("'targets' should be a list of strings, but one of them is 3"));
  EXPECT_THAT(
      scheme_complaint([](json& keys, json&) {
        keys["config_groups"]["experts"] = {{"format", "marlin-24"},
                                            {"weights", {{"num_bits", 4}, {"type", "float"}}}};
      }),
      HasSubstr("config_groups: experts: 'format' is 'marlin-24' with weights of type 'float', "
                "which is not supported"));
  EXPECT_THAT(scheme_complaint([](json& keys, json&) {
                keys["sparsity_config"] = {{"format", "sparse-24-bitmask"}};
              }),
              HasSubstr("stored sparsely"));
}

TEST(CompressionSchemeTest, ModulesHaveTheSchemeOfTheirGroup) {
  json config = config_json("w4a16");
  json& groups = config["quantization_config"]["config_groups"];
  json eight = groups["group_0"];
  eight["weights"] = {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}};
  eight["targets"] = {"re:.*self_attn.*", "head"};
  groups["group_1"] = eight;
  eight["weights"]["num_bits"] = 2;
  eight["targets"] = {"re:.*attn.q_proj$", "Embedding"};
  groups["group_2"] = eight;
  groups["caches"] = {{"targets", {"Attention"}}, {"weights", nullptr}};
  const CompressionSchemes schemes = parse_compression(config.dump(), "config.json").value();
  const auto bits = [&](const char* module) {
    const CompressionScheme* scheme = schemes.find(module);
    return scheme == nullptr ? 0 : scheme->bits;
  };
  EXPECT_EQ(bits("model.layers.0.mlp.experts.7.down_proj"), 4);
  EXPECT_EQ(bits("model.layers.0.self_attn.k_proj"), 8);
  EXPECT_EQ(bits("model.layers.0.self_attn.q_proj"), 2);  // "re:.*a..." is before "re:.*s..."
  EXPECT_EQ(bits("head"), 8);
  EXPECT_EQ(bits("model.embed_tokens"), 2);
  EXPECT_EQ(bits("model.language_model.embed_tokens_per_layer"), 2);
  groups["group_0"]["targets"] = "re:mlp";
  EXPECT_EQ(parse_compression(config.dump(), "config.json")->find("model.mlp"), nullptr);
  EXPECT_NE(parse_compression(config.dump(), "config.json")->find("mlp.up_proj"), nullptr);
}

TEST(CompressionSchemeTest, IsReadOfAWrappedModelAndOfModelOptimizer) {
  const json config = config_json("w4a16");
  EXPECT_EQ(parse_compression(json{{"text_config", config}}.dump(), "config.json"),
            parse_compression(config.dump(), "config.json"));
  json keys = {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}};
  const auto scheme = [&] {
    return parse_compression(json{{"quantization_config", keys}}.dump(), "config.json").value();
  };
  EXPECT_EQ(*scheme().find(""), (CompressionScheme{.codes = CompressionScheme::Codes::kFloat8}));
  keys["quant_algo"] = "NVFP4";
  EXPECT_EQ(*scheme().find(""),
            (CompressionScheme{.codes = CompressionScheme::Codes::kFloat4,
                               .whole_scale = CompressionScheme::WholeScale::kMultiplies,
                               .bits = 4,
                               .rows_per_scale = 1,
                               .columns_per_scale = 16}));
  keys["quant_algo"] = "W4A8_AWQ";
  EXPECT_THAT(error_message<WeightsError>([&] { scheme(); }),
              HasSubstr("'quant_algo' is 'W4A8_AWQ', which is not supported; known: FP8, NVFP4"));
}

TEST(CompressionSchemeTest, FloatsOfFourBitsHaveAScaleForEachGroup) {
  const auto change = [](const json& weights) {
    return [&weights](json& keys, json& own) {
      keys["format"] = "nvfp4-pack-quantized";
      own = weights;
    };
  };
  json weights = {
      {"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}};
  EXPECT_EQ(scheme_complaint(change(weights)), "no error");
  weights["num_bits"] = 8;
  EXPECT_THAT(scheme_complaint(change(weights)), HasSubstr("'num_bits' is 8; the floats"));
  weights["num_bits"] = 4;
  weights["strategy"] = "channel";
  EXPECT_THAT(scheme_complaint(change(weights)),
              HasSubstr("'strategy' gives no scale to each group of a row"));
  weights["strategy"] = "group";
  weights["symmetric"] = false;
  EXPECT_THAT(scheme_complaint(change(weights)), HasSubstr("'symmetric' is false"));
}

TEST(CompressionSchemeTest, GptqAndAwqSayWhatTheyDoNotRead) {
  const auto complaint = [](const json& keys) {
    return error_message<WeightsError>([&] {
      (void)parse_compression(json{{"quantization_config", keys}}.dump(), "config.json");
    });
  };
  json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", -1}};
  EXPECT_EQ(complaint(gptq), "no error");
  gptq["dynamic"] = {{"-:.*mlp.*", json::object()}};
  EXPECT_THAT(complaint(gptq), HasSubstr("'dynamic' stores some modules otherwise"));
  gptq["dynamic"] = json::object();
  gptq["group_size"] = 0;
  EXPECT_THAT(complaint(gptq), HasSubstr("'group_size' is 0; it should be above 0, or -1"));
  gptq["group_size"] = 128;
  gptq["checkpoint_format"] = "marlin";
  EXPECT_THAT(complaint(gptq), HasSubstr("'checkpoint_format' is 'marlin'"));
  json awq = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}};
  EXPECT_EQ(complaint(awq), "no error");
  awq["version"] = "gemv";
  EXPECT_THAT(complaint(awq), HasSubstr("'version' is 'gemv', which packs words otherwise"));
  awq["version"] = "GEMM";
  awq["zero_point"] = false;
  EXPECT_THAT(complaint(awq), HasSubstr("'zero_point' is false"));
}

CompressionScheme fp8_scheme(const json& keys) {
  json config = {{"quantization_config", keys}};
  config["quantization_config"]["quant_method"] = "fp8";
  return *parse_compression(config.dump(), "config.json").value().find("layer");
}

TEST(CompressionSchemeTest, TheMethodFp8HasScalesOfBlocksOrOfAll) {
  const CompressionScheme all = {.codes = CompressionScheme::Codes::kFloat8};
  CompressionScheme blocks = all;
  blocks.rows_per_scale = 128;
  blocks.columns_per_scale = 64;
  EXPECT_EQ(fp8_scheme({{"activation_scheme", "dynamic"}}), all);
  EXPECT_EQ(fp8_scheme({{"fmt", "e4m3"}, {"weight_block_size", {128, 64}}}), blocks);
  EXPECT_THAT(error_message<WeightsError>([] {
                fp8_scheme({{"fmt", "e5m2"}});
              }),
              HasSubstr("is 'e5m2', which is not supported; known: e4m3"));
  EXPECT_THAT(error_message<WeightsError>([] {
                fp8_scheme({{"weight_block_size", {128}}});
              }),
              HasSubstr("weight_block_size"));
  EXPECT_THAT(error_message<WeightsError>([] {
                fp8_scheme({{"weight_block_size", {1, 0}}});
              }),
              HasSubstr("two whole numbers in 1 to 16777216"));
}

TEST(CompressionSchemeTest, RoundingsThatAreLeftOutAreSaid) {
  const auto notes = [](const json& keys) {
    return left_out_roundings(json{{"quantization_config", keys}}.dump(), "config.json");
  };
  EXPECT_THAT(left_out_roundings(config_json("w4a16").dump(), "config.json"), IsEmpty());
  EXPECT_THAT(left_out_roundings("{}", "config.json"), IsEmpty());
  EXPECT_THAT(notes({{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}}),
              ElementsAre(HasSubstr("stay float32")));
  EXPECT_THAT(notes({{"config_groups", {{"group_0", {{"input_activations", {{"num_bits", 8}}}}}}},
                     {"kv_cache_scheme", {{"num_bits", 8}}}}),
              ElementsAre(HasSubstr("stay float32"), HasSubstr("kv_cache_scheme is left out")));
}

/// What is said of a checkpoint of one layer [4, 8] with these tensors.
std::string tensors_complaint(const CompressionSchemes& scheme,
                              const std::vector<TensorToWrite>& tensors) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "model.safetensors", tensors);
  return error_message<WeightsError>([&] {
    const CompressedTensors read(std::make_shared<const CheckpointTensors>(folder.path()), scheme);
    (void)read.find("a.weight");
    (void)read.find("experts.down_proj");
  });
}

/// A small tensor of zeros.
TensorToWrite zero_tensor(const char* name, DType dtype, std::vector<int64_t> shape) {
  static const std::vector<std::byte> zeros(96);
  TensorToWrite one{.name = name, .dtype = dtype, .shape = std::move(shape), .bytes = {}};
  int64_t values = 1;
  for (const int64_t size : one.shape) {
    values *= size;
  }
  one.bytes = std::span(zeros).first(static_cast<size_t>(values * dtype_bytes(dtype)));
  return one;
}

TEST(CompressedTensorsTest, TensorsThatDoNotFitAreNamed) {
  const CompressionScheme channel = {.codes = CompressionScheme::Codes::kFloat8,
                                     .rows_per_scale = 1};
  const TensorToWrite codes = zero_tensor("a.weight", DType::kF8E4M3, {4, 8});
  EXPECT_EQ(tensors_complaint(channel, {codes, zero_tensor("a.weight_scale", DType::kF32, {4, 1})}),
            "no error");
  EXPECT_THAT(tensors_complaint(channel, {codes}),
              HasSubstr("tensor 'a.weight' has no weight_scale beside it"));
  EXPECT_THAT(
      tensors_complaint(channel, {codes, zero_tensor("a.weight_scale", DType::kF32, {3, 1})}),
      HasSubstr("'a.weight_scale' has shape [3, 1], but for a matrix [4, 8] it should be "
                "[4, 1]"));
  EXPECT_THAT(
      tensors_complaint(channel, {codes, zero_tensor("a.weight_scale", DType::kI32, {4, 1})}),
      HasSubstr("'a.weight_scale' has dtype I32; it should be F32 or F16 or BF16"));
  EXPECT_THAT(tensors_complaint(scheme_of("w4a16"), {codes}),
              HasSubstr("'a.weight' has dtype F8_E4M3, but config.json's quantization_config "
                        "speaks of I32 words in 'weight_packed'"));
  const TensorToWrite packed = zero_tensor("a.weight_packed", DType::kI32, {4, 1});
  EXPECT_THAT(tensors_complaint(scheme_of("w4a16"), {packed}),
              HasSubstr("tensor 'a.weight_shape' is missing"));
  EXPECT_THAT(tensors_complaint(scheme_of("w4a16"),
                                {packed, zero_tensor("a.weight_shape", DType::kI64, {2})}),
              HasSubstr("is of a matrix of shape [0, 0]"));
}

TEST(CompressedTensorsTest, StacksThatDoNotFitAreNamed) {
  const CompressionScheme rows = {.codes = CompressionScheme::Codes::kFloat8, .rows_per_scale = 1};
  const TensorToWrite codes = zero_tensor("experts.down_proj", DType::kF8E4M3, {3, 4, 8});
  const auto scales = [&](std::vector<int64_t> shape) {
    return zero_tensor("experts.down_proj_scale", DType::kF32, std::move(shape));
  };
  EXPECT_EQ(tensors_complaint(rows, {codes, scales({3, 4, 1})}), "no error");
  EXPECT_THAT(tensors_complaint(rows, {codes}),
              HasSubstr("'experts.down_proj' has no weight_scale beside it"));
  EXPECT_THAT(tensors_complaint(rows, {codes, scales({2, 4, 1})}),
              HasSubstr("'experts.down_proj_scale' has shape [2, 4, 1], but for a stack of "
                        "matrices [4, 8] it should be [3, 4, 1]"));
  EXPECT_THAT(tensors_complaint(rows, {zero_tensor("experts.down_proj", DType::kF8E4M3, {0, 4, 8}),
                                       scales({1, 4, 1})}),
              HasSubstr("has shape [0, 4, 8], but holds 8 bits of each weight"));
}

TEST(CompressedTensorsTest, AnOrderOfInputsIsReadWhereItIsTheirs) {
  const std::vector<uint32_t> words(8 * 8);
  const std::vector<uint16_t> scales(8 * 2, 0x3F80);
  const std::vector<int64_t> shape = {8, 64};
  std::vector<int32_t> order(64);
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  const auto complaint = [&] {
    return tensors_complaint(scheme_of("w4a16"),
                             {{"a.weight_packed", DType::kI32, {8, 8}, bytes(words)},
                              {"a.weight_scale", DType::kBF16, {8, 2}, bytes(scales)},
                              {"a.weight_shape", DType::kI64, {2}, bytes(shape)},
                              {"a.weight_g_idx", DType::kI32, {std::ssize(order)}, bytes(order)}});
  };
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i < 32 ? 0 : 1;
  }
  EXPECT_EQ(complaint(), "no error");
  std::swap(order[3], order[40]);
  EXPECT_THAT(complaint(), HasSubstr("'a.weight_g_idx' orders its groups by activations"));
  order.assign(64, -1);
  EXPECT_EQ(complaint(), "no error");
  order.resize(63);
  EXPECT_THAT(complaint(), HasSubstr("should hold 64 integers of type I32"));
}

}  // namespace
}  // namespace specdec
