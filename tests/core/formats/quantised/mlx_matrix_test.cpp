// Values are compared in compressed_tensors_test.cpp.
#include "core/formats/quantised/mlx_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"
#include "core/formats/float_values.h"
#include "core/formats/gguf/gguf_blocks.h"
#include "core/formats/quantised/compressed_tensors.h"
#include "tests/support/error_message.h"
#include "tests/support/owned_tensors.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// A matrix [4, 64] in codes of 4 bits, groups of 32.
OwnedTensors mlx_matrix() {
  return {{"a.weight", zeros_of(DType::kI32, {4, 8})},
          {"a.scales", zeros_of(DType::kBF16, {4, 2})},
          {"a.biases", zeros_of(DType::kBF16, {4, 2})}};
}

json mlx_config(const json& more = {}) {
  json said = {{"group_size", 32}, {"bits", 4}};
  said.update(more.is_null() ? json::object() : more);
  return {{"quantization", said}};
}

std::string mlx_complaint(const OwnedTensors& folder, const json& config = mlx_config()) {
  return error_message<WeightsError>([&] {
    const CompressedTensors tensors(in_memory(folder),
                                    parse_compression(config.dump(), "config.json").value());
    (void)tensors.find("a.weight");
  });
}

/// The values of a.weight, which should become blocks of this type.
std::vector<float> values_of(const OwnedTensors& folder, DType type,
                             const json& config = mlx_config()) {
  const CompressedTensors tensors(in_memory(folder),
                                  parse_compression(config.dump(), "config.json").value());
  const TensorEntry* entry = tensors.find("a.weight");
  EXPECT_EQ(entry->dtype, type);
  tensors.provide(*entry);
  if (!is_block(entry->dtype)) {
    return float_values(*entry);
  }
  std::vector<float> values(entry->bytes.size() / static_cast<size_t>(dtype_bytes(type)) *
                            static_cast<size_t>(block_values(type)));
  dequantize(entry->dtype, entry->bytes.data(), std::ssize(values), values.data());
  return values;
}

TEST(MlxMatrixTest, TensorsThatDoNotFitAreNamed) {
  EXPECT_EQ(mlx_complaint(mlx_matrix()), "no error");
  for (const std::string part : {"scales", "biases"}) {
    OwnedTensors folder = mlx_matrix();
    folder.erase("a." + part);
    EXPECT_THAT(mlx_complaint(folder),
                HasSubstr("folder: tensor 'a.weight' has no " + part + " beside it"));
    folder["a." + part] = zeros_of(DType::kBF16, {4, 3});
    EXPECT_THAT(mlx_complaint(folder), HasSubstr("'a." + part + "' has shape [4, 3]"));
    folder["a." + part] = zeros_of(DType::kI8, {4, 2});
    EXPECT_THAT(mlx_complaint(folder), HasSubstr("has dtype I8; it should be F32 or F16 or BF16"));
  }
  OwnedTensors folder = mlx_matrix();
  folder["a.weight"] = zeros_of(DType::kI32, {4, 7});
  EXPECT_THAT(mlx_complaint(folder, mlx_config({{"bits", 6}})),
              HasSubstr("rows of 7 words, which do not hold codes of 6 bits"));
  folder["a.weight"] = zeros_of(DType::kI32, {0, 4, 8});
  EXPECT_THAT(mlx_complaint(folder), HasSubstr("'a.weight' should have two dimensions"));
  folder["a.weight"] = zeros_of(DType::kI32, {8});
  EXPECT_THAT(mlx_complaint(folder), HasSubstr("'a.weight' should have two dimensions"));
  folder = mlx_matrix();
  folder["b.weight"] = zeros_of(DType::kI32, {8});
  EXPECT_EQ(mlx_complaint(folder), "no error") << "nobody reads it";
  folder = mlx_matrix();  // a group that reaches over the end of a row
  folder["a.weight"] = zeros_of(DType::kI32, {4, 7});
  folder["a.scales"] = folder["a.biases"] = zeros_of(DType::kBF16, {4, 1});
  EXPECT_THAT(mlx_complaint(folder, mlx_config({{"group_size", 128}})),
              HasSubstr("rows of 56 inputs, which are no whole groups of 128"));
}

TEST(MlxMatrixTest, BitsAndGroupsThatWouldFitAreSaid) {
  for (const json& wrong : {json{{"bits", 8}}, json{{"group_size", 64}}, json{{"bits", 2}}}) {
    json said = {{"bits", 4}, {"group_size", 32}};
    said.update(wrong);
    EXPECT_THAT(mlx_complaint(mlx_matrix(), mlx_config(wrong)),
                HasSubstr("'a.weight' has rows of 8 words beside 2 scales, which bits x group_size "
                          "of config.json's quantization, " +
                          said["bits"].dump() + " x " + said["group_size"].dump() +
                          ", do not fit: 8 x 16 or 4 x 32 or 2 x 64 would"));
  }
}

TEST(MlxMatrixTest, ScalesOfMoreThanAnyMatrixAreNamed) {
  OwnedTensors folder = mlx_matrix();  // 2^62 + 2, which would be 2 once bits are counted
  folder["a.scales"] = zeros_of(DType::kBF16, {0, 4611686018427387906});
  EXPECT_THAT(mlx_complaint(folder, mlx_config({{"group_size", 64}})),
              HasSubstr("'a.scales' has shape [0, 4611686018427387906]"));
}

TEST(MlxMatrixTest, WhatIsNotSupportedIsNamed) {
  const auto said = [](const json& more) { return mlx_complaint(mlx_matrix(), mlx_config(more)); };
  EXPECT_THAT(said({{"bits", 7}}), HasSubstr("'bits' is 7, which is not supported; known: 2, 3"));
  EXPECT_THAT(said({{"mode", "int4"}}), HasSubstr("known: affine, mxfp4, mxfp8, nvfp4"));
  EXPECT_THAT(said({{"mode", "mxfp8"}}), HasSubstr("8 bits and groups of 32, not 4 and 32"));
  EXPECT_THAT(said({{"mode", "mxfp4"}, {"group_size", 64}}),
              HasSubstr("groups of 32, not 4 and 64"));
  EXPECT_THAT(said({{"group_size", "many"}}), HasSubstr("group_size"));
  for (const char* key : {"bits", "group_size"}) {
    json config = mlx_config();
    config["quantization"].erase(key);
    EXPECT_THAT(mlx_complaint(mlx_matrix(), config), HasSubstr(std::string("'") + key + "'"));
  }
  EXPECT_THAT(said({{"a", {{"bits", 9}}}}), HasSubstr("'bits' is 9"));
  EXPECT_EQ(said({{"model.a", true}, {"note", "of another tool"}}), "no error");
  // Keys of other tools under the same name are theirs.
  for (const char* other : {R"({"algorithm": "none"})", R"("none")", "false", "4"}) {
    const std::string config = std::string(R"({"quantization": )") + other + "}";
    EXPECT_EQ(parse_compression(config, "config.json"), std::nullopt) << config;
  }
}

TEST(MlxMatrixTest, ModulesMayHaveBitsOfTheirOwn) {
  OwnedTensors folder = mlx_matrix();
  folder["b.weight"] = zeros_of(DType::kI32, {2, 16});
  folder["b.scales"] = folder["b.biases"] = zeros_of(DType::kF16, {2, 1});
  folder["c.weight"] = zeros_of(DType::kBF16, {2, 16});
  const json config = mlx_config({{"b", {{"group_size", 64}, {"bits", 8}}}, {"c", false}});
  const auto schemes = parse_compression(config.dump(), "config.json").value();
  const CompressedTensors tensors(in_memory(folder), schemes);
  EXPECT_EQ(tensors.find("a.weight")->dtype, DType::kQ41);
  EXPECT_EQ(tensors.find("b.weight")->dtype, DType::kAffine8x64);
  EXPECT_EQ(tensors.find("b.weight")->shape, (std::vector<int64_t>{2, 64}));
  EXPECT_EQ(tensors.find("c.weight")->dtype, DType::kBF16);
  EXPECT_EQ(tensors.find("a.scales")->dtype,
            DType::kBF16);  // of the file, and no tensor of a model
  EXPECT_EQ(tensors.tensors().size(), 3U);
}

TEST(MlxMatrixTest, AModesBitsAndGroupsAreItsOwn) {
  OwnedTensors folder = mlx_matrix();
  const auto add = [&](const std::string& module, int64_t words, int64_t groups) {
    folder[module + ".weight"] = zeros_of(DType::kI32, {4, words});
    folder[module + ".scales"] = zeros_of(DType::kU8, {4, groups});
  };
  add("b", 8, 4);
  add("c", 8, 2);
  add("d", 16, 2);
  const json config = mlx_config(
      {{"b", {{"mode", "nvfp4"}}}, {"c", {{"mode", "mxfp4"}}}, {"d", {{"mode", "mxfp8"}}}});
  EXPECT_EQ(mlx_complaint(folder, config), "no error");
  const CompressedTensors tensors(in_memory(folder),
                                  parse_compression(config.dump(), "config.json").value());
  for (const char* name : {"a.weight", "b.weight", "c.weight", "d.weight"}) {
    EXPECT_EQ(tensors.find(name)->shape, (std::vector<int64_t>{4, 64})) << name;
  }
  EXPECT_THAT(mlx_complaint(folder, mlx_config({{"a", {{"mode", "nvfp4"}, {"group_size", 32}}}})),
              HasSubstr("4 bits and groups of 16, not 4 and 32"));
}

TEST(MlxMatrixTest, ModulesThatNoFileHoldsAreSaid) {
  const auto notes = [](const json& more) {
    const auto schemes = parse_compression(mlx_config(more).dump(), "config.json").value();
    return CompressedTensors(in_memory(mlx_matrix()), schemes).notes();
  };
  const json other = {{"group_size", 64}, {"bits", 8}};
  EXPECT_THAT(notes({{"a", {{"group_size", 32}, {"bits", 4}}}}), testing::IsEmpty());
  EXPECT_THAT(
      notes({{"model.b", other}, {"model.c", other}, {"d", false}}),
      testing::ElementsAre(HasSubstr("2 modules are stored that the files do not hold, such "
                                     "as 'model.b'")));
}

/// A checkpoint of the text part keeps what config.json says of others.
TEST(MlxMatrixTest, MistakesCountWhereTheModuleIsRead) {
  OwnedTensors folder = mlx_matrix();
  for (const char* part : {".weight", ".scales", ".biases"}) {
    folder[std::string("model.b") + part] = folder[std::string("a") + part];
  }
  const auto error = [&](const json& more, const char* read) {
    return error_message<WeightsError>([&] {
      const CompressedTensors tensors(
          in_memory(folder), parse_compression(mlx_config(more).dump(), "config.json").value());
      EXPECT_EQ(tensors.notes().empty(), more.contains("model.b"));
      (void)tensors.find(read);
    });
  };
  for (const json& entry :
       {json{{"bits", 0}}, json{{"bits", 7}}, json{{"mode", "int4"}}, json(4), json("none")}) {
    EXPECT_EQ(error({{"vision.c", entry}}, "model.b.weight"), "no error") << "is named in a note";
    EXPECT_EQ(error({{"model.b", entry}}, "a.weight"), "no error");
    EXPECT_NE(error({{"model.b", entry}}, "model.b.weight"), "no error");
  }
  EXPECT_THAT(error({{"model.b", {{"bits", 0}}}}, "model.b.weight"),
              HasSubstr("model.b: 'bits' should lie in 1 to"));
  EXPECT_THAT(error({{"model.b", 4}}, "model.b.weight"),
              HasSubstr("but should be an object with a module's bits and group_size, true or"));
}

TEST(MlxMatrixTest, ScalesThatAreNoHalvesKeepTheirValues) {
  OwnedTensors folder = mlx_matrix();
  const uint16_t tiny = 0x3000;  // a bfloat16 of 2^-31
  std::memcpy(folder["a.scales"].bytes.data(), &tiny, sizeof(tiny));
  std::memset(folder["a.weight"].bytes.data(), 0x11, 4);
  EXPECT_EQ(values_of(folder, DType::kF32).front(), 0x1p-31F);
}

TEST(MlxMatrixTest, GroupsOfEqualWeightsNeedNoScale) {
  OwnedTensors folder = mlx_matrix();
  const uint16_t tiny = 0x33D7;  // what MLX writes there: 1e-7
  const uint16_t bias = 0x3F00;  // 0.5
  std::memcpy(folder["a.scales"].bytes.data(), &tiny, sizeof(tiny));
  std::memcpy(folder["a.biases"].bytes.data(), &bias, sizeof(bias));
  const std::vector<float> values = values_of(folder, DType::kQ41);
  ASSERT_EQ(values.size(), 4U * 64);
  EXPECT_EQ(values[0], 0.5F);
  EXPECT_EQ(values[31], 0.5F);
  EXPECT_EQ(values[32], 0.0F);
}

/// All matrices of a stack get the type that one of them needs, also where the others alone would
/// have another.
TEST(MlxMatrixTest, AStackHasOneType) {
  OwnedTensors stack = {{"a.weight", zeros_of(DType::kI32, {3, 1, 4})},
                        {"a.scales", zeros_of(DType::kBF16, {3, 1, 1})},
                        {"a.biases", zeros_of(DType::kBF16, {3, 1, 1})}};
  const uint16_t scales[] = {0x3F80, 0x3000, 0x4000};  // 1, 2^-31, 2
  std::memcpy(stack["a.scales"].bytes.data(), scales, sizeof(scales));
  std::memset(stack["a.weight"].bytes.data(), 0x33, 48);
  const std::vector<float> values = values_of(stack, DType::kF32);
  ASSERT_EQ(values.size(), 96U);
  EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 32), testing::Each(3.0F));
  EXPECT_THAT(std::vector<float>(values.begin() + 32, values.begin() + 64),
              testing::Each(3 * 0x1p-31F));
  EXPECT_THAT(std::vector<float>(values.begin() + 64, values.end()), testing::Each(6.0F));
}

TEST(MlxMatrixTest, FloatsOfFourBitsMayBeStacked) {
  OwnedTensors stack = {{"a.weight", zeros_of(DType::kI32, {2, 1, 4})},
                        {"a.scales", zeros_of(DType::kU8, {2, 1, 1})}};
  std::memset(stack["a.weight"].bytes.data(), 0x22, 32);  // 1.0 each
  stack["a.scales"].bytes = {std::byte{127}, std::byte{129}};
  const std::vector<float> values =
      values_of(stack, DType::kFp4x32, mlx_config({{"mode", "mxfp4"}}));
  ASSERT_EQ(values.size(), 64U);
  EXPECT_EQ(values[5], 1.0F);
  EXPECT_EQ(values[40], 4.0F);
}

TEST(MlxMatrixTest, StacksAreTheirMatrices) {
  OwnedTensors stack = {{"a.weight", zeros_of(DType::kI32, {3, 4, 8})},
                        {"a.scales", zeros_of(DType::kBF16, {3, 4, 2})},
                        {"a.biases", zeros_of(DType::kBF16, {3, 4, 2})}};
  const uint16_t one = 0x3F80;
  for (size_t i = 0; i < 24; ++i) {
    stack["a.weight"].bytes[i * 16] = static_cast<std::byte>(i);
    const uint16_t scale = one + static_cast<uint16_t>(i);
    std::memcpy(stack["a.scales"].bytes.data() + i * 2, &scale, sizeof(scale));
    std::memcpy(stack["a.biases"].bytes.data() + i * 2, &scale, sizeof(scale));
  }
  const auto schemes = parse_compression(mlx_config().dump(), "config.json").value();
  const CompressedTensors whole(in_memory(stack), schemes);
  const TensorEntry* all = whole.find("a.weight");
  ASSERT_EQ(all->shape, (std::vector<int64_t>{3, 4, 64}));
  whole.provide(*all);
  const size_t size = all->bytes.size() / 3;
  for (size_t i = 0; i < 3; ++i) {
    OwnedTensors folder = mlx_matrix();
    for (auto& [name, tensor] : folder) {
      const auto& from = stack[name].bytes;
      std::memcpy(tensor.bytes.data(), from.data() + i * from.size() / 3, from.size() / 3);
    }
    const CompressedTensors single(in_memory(folder), schemes);
    const TensorEntry* one_matrix = single.find("a.weight");
    single.provide(*one_matrix);
    ASSERT_EQ(one_matrix->bytes.size(), size);
    EXPECT_EQ(std::memcmp(one_matrix->bytes.data(), all->bytes.data() + i * size, size), 0) << i;
  }
}

}  // namespace
}  // namespace specdec
