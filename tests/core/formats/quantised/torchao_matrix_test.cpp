// Values are compared in compressed_tensors_test.cpp.
#include "core/formats/quantised/torchao_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/formats/pickle/pickled_file.h"
#include "core/formats/quantised/compressed_tensors.h"
#include "core/formats/strict_json.h"
#include "tests/support/error_message.h"
#include "tests/support/owned_tensors.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::filesystem::path torchao_folder(const std::string& name) {
  return std::filesystem::path(SPECDEC_SOURCE_DIR) / "tests/data/compressed" / ("torchao_" + name);
}

const CompressionScheme kTorchaoScheme{.codes = CompressionScheme::Codes::kTorchao};

std::string type_of(const std::string& name) {
  const CompressedTensors tensors(std::make_shared<CheckpointTensors>(torchao_folder(name)),
                                  kTorchaoScheme);
  return std::string(dtype_name(tensors.find("layer.weight")->dtype));
}

TEST(TorchaoMatrixTest, BlocksAreThoseThatHoldTheValues) {
  EXPECT_EQ(type_of("int4"), "AFFINE4_32");
  EXPECT_EQ(type_of("int4_tiles"), "AFFINE4_32");
  EXPECT_EQ(type_of("int4_awq"), "F32");
  EXPECT_EQ(type_of("fp8_rows"), "FP8_32");
  EXPECT_EQ(type_of("fp8_tensor"), "FP8_128");
  EXPECT_EQ(type_of("fp8_old"), "FP8_32");
  EXPECT_EQ(type_of("intx4_asymmetric"), "INT4_32");
  EXPECT_EQ(type_of("intx8"), "AFFINE8_64");
  EXPECT_EQ(type_of("int8"), "AFFINE8_64");
  EXPECT_EQ(type_of("8da4w_old"), "F32");
}

/// A folder of one matrix whose description and parts a test changes.
class TorchaoFolder {
 public:
  TorchaoFolder(const std::string& type, const json& data, OwnedTensors parts)
      : said({{"_type", type}, {"_data", data}}), tensors(std::move(parts)) {}

  std::string complaint() const {
    const TemporaryFolder made;
    std::vector<TensorToWrite> list;
    for (const auto& [name, tensor] : tensors) {
      list.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
    }
    write_safetensors(
        made.path() / "model.safetensors", list,
        {{"format", "pt"}, {"a.weight", said.dump()}, {"vision.weight", other.dump()}});
    return error_message<WeightsError>([&] {
      const CompressedTensors read(std::make_shared<CheckpointTensors>(made.path()),
                                   kTorchaoScheme);
      notes = read.notes();
      read.provide(*read.find("a.weight"));
      (void)read.find("b.weight");
      if (reads_vision) {
        (void)read.find("vision.weight");
      }
    });
  }

  mutable std::vector<std::string> notes;
  bool reads_vision = false;
  json said;
  json other = {{"_type", "Tensor"}};
  OwnedTensors tensors;
};

TorchaoFolder int4_folder() {
  return {"Int4Tensor",
          {{"block_size", {1, 32}}, {"shape", {4, 64}}},
          {{"a._weight_qdata", zeros_of(DType::kI8, {4, 32})},
           {"a._weight_scale", zeros_of(DType::kBF16, {2, 4})},
           {"a._weight_zero_point", zeros_of(DType::kBF16, {2, 4})}}};
}

TorchaoFolder intx_folder() {
  return {
      "IntxUnpackedToInt8Tensor",
      {{"block_size", {1, 32}}, {"target_dtype", {{"_type", "torch.dtype"}, {"_data", "int4"}}}},
      {{"a._weight_qdata", zeros_of(DType::kI8, {4, 64})},
       {"a._weight_scale", zeros_of(DType::kBF16, {4, 2})},
       {"a._weight_zero_point", zeros_of(DType::kI8, {4, 2})}}};
}

TorchaoFolder tile_folder() {
  return {"Int4TilePackedTo4dTensor",
          {{"block_size", {1, 64}}, {"shape", {6, 96}}},
          {{"a._weight_qdata", zeros_of(DType::kI32, {1, 8, 32, 4})},
           {"a._weight_scale_and_zero", zeros_of(DType::kBF16, {16, 8, 2})}}};
}

TEST(TorchaoMatrixTest, PartsThatDoNotFitAreNamed) {
  for (const auto& make : {int4_folder, intx_folder, tile_folder}) {
    EXPECT_EQ(make().complaint(), "no error");
    const TorchaoFolder whole = make();
    for (const auto& [name, part] : whole.tensors) {
      TorchaoFolder folder = make();
      folder.tensors.erase(name);
      const bool optional =
          whole.said["_type"] == "IntxUnpackedToInt8Tensor" && name == "a._weight_zero_point";
      EXPECT_THAT(folder.complaint(),
                  optional ? HasSubstr("no error") : HasSubstr(name.substr(name.rfind("t_") + 2)))
          << name;
      folder.tensors[name] = zeros_of(part.dtype, {5, 3});
      EXPECT_THAT(folder.complaint(), HasSubstr("has shape")) << name;
      folder.tensors[name] = zeros_of(DType::kBool, part.shape);
      EXPECT_THAT(folder.complaint(), AllOf(HasSubstr(name), HasSubstr("dtype BOOL"))) << name;
    }
  }
}

TEST(TorchaoMatrixTest, WhatIsNotSupportedIsNamed) {
  TorchaoFolder folder = int4_folder();
  folder.said["_type"] = "Int4PreshuffledTensor";
  EXPECT_THAT(folder.complaint(),
              AllOf(HasSubstr("'a.weight' is of torchao's class Int4Preshuffled"),
                    HasSubstr("known: Float8Tensor, Int8Tensor")));
  folder.said = {
      {"_type", "AffineQuantizedTensor"},
      {"_data",
       {{"tensor_impl", {{"_type", "MarlinSparseAQTTensorImpl"}, {"_data", json::object()}}},
        {"block_size", {1, 32}},
        {"shape", {4, 64}}}}};
  EXPECT_THAT(folder.complaint(),
              HasSubstr("AffineQuantizedTensor with MarlinSparseAQTTensorImpl"));
  folder.said["_data"].erase("tensor_impl");
  EXPECT_THAT(folder.complaint(), HasSubstr("without 'tensor_impl'"));
  folder.said = {{"_type", 3}};
  EXPECT_THAT(folder.complaint(), HasSubstr("no JSON object with _type and _data"));
  for (const char* change :
       {R"({"shape": [2, 4, 64]})", R"({"shape": [-4, 64]})", R"({"shape": [4, 63]})",
        R"({"shape": [0, 64]})", R"({"shape": "4"})", R"({"block_size": [1, 0]})",
        R"({"block_size": [2, 32]})", R"({"block_size": null})", R"({"transposed": true})"}) {
    TorchaoFolder changed = int4_folder();
    changed.said["_data"].update(json::parse(change));
    EXPECT_THAT(changed.complaint(), HasSubstr("tensor 'a.")) << change;
  }
}

TEST(TorchaoMatrixTest, OnlyAMatrixThatIsReadIsRefused) {
  TorchaoFolder folder = int4_folder();
  folder.other = {{"_type", "UnheardOfTensor"}, {"_data", json::object()}};
  folder.tensors["vision._weight_qdata"] = zeros_of(DType::kI8, {4, 64});
  EXPECT_EQ(folder.complaint(), "no error");
  folder.reads_vision = true;
  EXPECT_THAT(folder.complaint(),
              HasSubstr("'vision.weight' is of torchao's class UnheardOfTensor"));
  folder.other = folder.said;
  for (const auto& [name, part] : int4_folder().tensors) {
    folder.tensors["vision" + name.substr(1)] = part;
  }
  EXPECT_EQ(folder.complaint(), "no error");
  folder.tensors["vision.weight"] = zeros_of(DType::kBF16, {4, 64});
  EXPECT_THAT(folder.complaint(), HasSubstr("'vision._weight_qdata' is there beside "
                                            "'vision.weight', of which it is the compressed"));
  folder.reads_vision = false;
  EXPECT_EQ(folder.complaint(), "no error");
}

TEST(TorchaoMatrixTest, RoundedActivationsAreSaidByTheTensors) {
  TorchaoFolder folder = int4_folder();
  EXPECT_EQ(folder.complaint(), "no error");
  EXPECT_THAT(folder.notes, testing::IsEmpty());
  folder.said["_data"]["act_quant_kwargs"] = nullptr;
  EXPECT_EQ(folder.complaint(), "no error");
  EXPECT_THAT(folder.notes, testing::IsEmpty());
  folder.said["_data"]["act_quant_kwargs"] = {{"_type", "QuantizeTensorToInt8Kwargs"}};
  EXPECT_EQ(folder.complaint(), "no error");
  EXPECT_THAT(folder.notes, testing::ElementsAre(HasSubstr("stay float32")));
  for (const char* name : {"8da4w_old", "intx4_asymmetric"}) {
    const auto stored = std::make_shared<CheckpointTensors>(torchao_folder(name));
    EXPECT_THAT(CompressedTensors(stored, kTorchaoScheme).notes(),
                testing::ElementsAre(HasSubstr("stay float32")))
        << name;
  }
}

TEST(TorchaoMatrixTest, ScalesThatAreNotFiniteAreNamed) {
  TorchaoFolder folder = int4_folder();
  folder.tensors["a._weight_scale"].bytes[7] = std::byte{0x7F};
  folder.tensors["a._weight_scale"].bytes[6] = std::byte{0xC0};
  EXPECT_THAT(folder.complaint(), HasSubstr("'a._weight_scale' holds NaN at value 3"));
}

TEST(TorchaoMatrixTest, BlocksOfMoreThanAnyMatrixAreNamed) {
  TorchaoFolder folder = tile_folder();
  folder.tensors["a._weight_scale_and_zero"] = zeros_of(DType::kBF16, {0, 8, 2});
  for (const char* size :
       {"9223372036854775807", "18446744073709551615", "4611686018427387904", "16777217", "1e30"}) {
    folder.said["_data"]["block_size"] = json::parse(std::string("[1, ") + size + "]");
    EXPECT_THAT(folder.complaint(), HasSubstr("two numbers up to 16777216 are supported")) << size;
  }
}

TEST(TorchaoMatrixTest, UnknownPartsAreNamed) {
  TorchaoFolder folder = int4_folder();
  folder.tensors["a._weight_post_scale"] = zeros_of(DType::kBF16, {4});
  EXPECT_THAT(folder.complaint(), HasSubstr("tensor 'a._weight_post_scale' is a part of"));
  folder.said["_tensor_data_names"] = {"qdata", "scale", "zero_point", "post_scale"};
  EXPECT_THAT(folder.complaint(),
              HasSubstr("tensor 'a.weight' is a Int4Tensor with the part \"post_scale\""));
  folder = tile_folder();  // of other classes
  folder.tensors["a._weight_zero_point"] = zeros_of(DType::kBF16, {2, 6});
  EXPECT_THAT(folder.complaint(), HasSubstr("'a._weight_zero_point'"));
  folder = intx_folder();
  folder.tensors["a._weight_act_quant_scale"] = zeros_of(DType::kF32, {1});
  folder.said["_tensor_data_names"] = {"qdata", "scale", "zero_point", "act_quant_scale"};
  EXPECT_EQ(folder.complaint(), "no error") << "activations stay as they are";
  folder.tensors["b._weight_qdata"] = zeros_of(DType::kI8, {4, 64});
  EXPECT_THAT(folder.complaint(), AllOf(HasSubstr("'b._weight_qdata' is a part of a matrix"),
                                        HasSubstr("does not describe")));
}

TEST(TorchaoMatrixTest, FloatsWithoutBlocksHaveOneScale) {
  TorchaoFolder folder = {"Float8Tensor",
                          {{"block_size", json::array()}},
                          {{"a._weight_qdata", zeros_of(DType::kF8E4M3, {4, 64})},
                           {"a._weight_scale", zeros_of(DType::kF32, {})}}};
  EXPECT_EQ(folder.complaint(), "no error");
  folder.tensors["a._weight_scale"] = zeros_of(DType::kF32, {4, 1});
  EXPECT_THAT(folder.complaint(), HasSubstr("'a._weight_scale' has shape [4, 1]"));
  folder.said["_data"]["block_size"] = {1, 0};
  EXPECT_THAT(folder.complaint(), HasSubstr("has the block_size [1, 0]: the rows and columns"));
  folder = int4_folder();
  folder.said["_data"]["block_size"] = json::array();
  EXPECT_THAT(folder.complaint(), HasSubstr("block_size"));
}

TEST(TorchaoMatrixTest, CodesAndZeroPointsHaveTheirBits) {
  TorchaoFolder folder = intx_folder();
  folder.tensors["a._weight_qdata"].bytes[7] = std::byte{8};
  EXPECT_THAT(folder.complaint(), HasSubstr(": tensor 'a._weight_qdata' holds the code 8"));
  folder = intx_folder();
  folder.tensors["a._weight_zero_point"].bytes[1] = std::byte{0xF0};
  EXPECT_THAT(folder.complaint(),
              HasSubstr("'a._weight_zero_point' holds -16; zero points are integers of 4 bits"));
  folder.said["_data"]["target_dtype"] = {{"_type", "torch.dtype"}, {"_data", "int9"}};
  EXPECT_THAT(folder.complaint(), HasSubstr("known: int1 to int8"));
}

TEST(TorchaoMatrixTest, RoundedActivationsAreSaid) {
  const auto notes = [](const json& type) {
    const json keys = {
        {"quantization_config", {{"quant_method", "torchao"}, {"quant_type", type}}}};
    return left_out_roundings(keys.dump(), "config.json");
  };
  EXPECT_THAT(notes({{"default", {{"_type", "Int4WeightOnlyConfig"}}}}), testing::IsEmpty());
  EXPECT_THAT(notes("int4_weight_only"), testing::IsEmpty());
  for (const json& type :
       {json("int8_dynamic_activation_int4_weight"),
        json{{"default", {{"_type", "Float8DynamicActivationFloat8WeightConfig"}}}}}) {
    EXPECT_THAT(notes(type), testing::ElementsAre(HasSubstr("stay float32")));
  }
}

TEST(TorchaoMatrixTest, AnIndexNamesMatricesNotTheirParts) {
  const TemporaryFolder folder;
  folder.write("one.bin", read_file(torchao_folder("int8") / "pytorch_model.bin"));
  json index = {{"weight_map", {{"layer.weight", "one.bin"}, {"norm.weight", "one.bin"}}}};
  folder.write("pytorch_model.bin.index.json", index.dump());
  const CheckpointTensors stored(folder.path());
  EXPECT_THAT(stored.missing(), testing::IsEmpty());
  EXPECT_NE(stored.find("layer._weight_qdata"), nullptr);
  index["weight_map"]["other.weight"] = "one.bin";
  folder.write("pytorch_model.bin.index.json", index.dump());
  EXPECT_THAT(CheckpointTensors(folder.path()).missing(),
              testing::ElementsAre(testing::Pair("other.weight", "one.bin")));
}

/// Whatever is cut: an error.
TEST(TorchaoMatrixTest, TruncatedPicklesAreErrors) {
  const std::string whole = read_file(torchao_folder("8da4w_old") / "pytorch_model.bin");
  const TemporaryFolder folder;
  for (size_t size = 1; size < whole.size(); size += 31) {
    const auto path = folder.write("cut.bin", whole.substr(0, size));
    EXPECT_NE(error_message<WeightsError>([&] { const PickledFile file(path); }), "no error")
        << size;
  }
}

TEST(TorchaoMatrixTest, StridesThatAreNoNumbersAreNamed) {
  std::string whole = read_file(torchao_folder("int8") / "pytorch_model.bin");
  const std::string strides = "K\x01K\x01\x86";
  const size_t at = whole.find(strides);
  ASSERT_NE(at, std::string::npos);
  whole.replace(at, strides.size(), "\x88\x88N0\x86");  // (True, True)
  const TemporaryFolder folder;
  const auto path = folder.write("strides.bin", whole);
  EXPECT_THAT(error_message<WeightsError>([&] { const PickledFile file(path); }),
              HasSubstr("a shape or stride is no natural number"));
}

TEST(TorchaoMatrixTest, PicklesOfOtherObjectsStayRefused) {
  std::string whole = read_file(torchao_folder("int8") / "pytorch_model.bin");
  const std::string name = "torch._tensor\n_rebuild_from_type_v2";
  const size_t at = whole.find(name);
  ASSERT_NE(at, std::string::npos);
  whole.replace(at, name.size(), "torch._tensor\n_rebuild_from_type_v9");
  const TemporaryFolder folder;
  const auto path = folder.write("other.bin", whole);
  EXPECT_THAT(error_message<WeightsError>([&] { const PickledFile file(path); }),
              HasSubstr("only dictionaries of tensors are read"));
}

}  // namespace
}  // namespace specdec
