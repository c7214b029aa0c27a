// Values are compared in compressed_tensors_test.cpp.
#include "core/formats/quantised/bitsandbytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/formats/quantised/compressed_tensors.h"
#include "tests/support/error_message.h"
#include "tests/support/owned_tensors.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kState = "a.weight.quant_state.bitsandbytes__nf4";

OwnedTensor text_tensor(const std::string& text) {
  OwnedTensor tensor = zeros_of(DType::kU8, {std::ssize(text)});
  std::memcpy(tensor.bytes.data(), text.data(), text.size());
  return tensor;
}

/// A matrix [4, 128] with scales of 64 inputs.
OwnedTensors four_bit_tensors(const json& state = {}) {
  json said = {{"shape", {4, 128}}, {"blocksize", 64}, {"quant_type", "nf4"}};
  said.update(state.is_null() ? json::object() : state);
  return {{"a.weight", zeros_of(DType::kU8, {256, 1})},
          {"a.weight.absmax", zeros_of(DType::kF32, {8})},
          {"a.weight.quant_map", zeros_of(DType::kF32, {16})},
          {kState, text_tensor(said.dump())}};
}

std::string complaint(const OwnedTensors& tensors, const char* bits = "load_in_4bit") {
  const json config = {{"quantization_config", {{"quant_method", "bitsandbytes"}, {bits, true}}}};
  return error_message<WeightsError>([&] {
    const CompressedTensors read(in_memory(tensors),
                                 parse_compression(config.dump(), "config.json").value());
    (void)read.find("a.weight");
  });
}

TEST(BitsandbytesTest, TensorsThatDoNotFitAreNamed) {
  EXPECT_EQ(complaint(four_bit_tensors()), "no error");
  for (const char* name : {"a.weight.absmax", "a.weight.quant_map", kState}) {
    OwnedTensors tensors = four_bit_tensors();
    tensors.erase(name);
    EXPECT_THAT(complaint(tensors), HasSubstr("folder: tensor 'a.weight' has no")) << name;
  }
  OwnedTensors tensors = four_bit_tensors();
  tensors["a.weight.absmax"] = zeros_of(DType::kF32, {7});
  EXPECT_THAT(complaint(tensors), HasSubstr("'a.weight.absmax' has shape [7]"));
  tensors["a.weight.absmax"] = zeros_of(DType::kU8, {8});
  EXPECT_THAT(complaint(tensors), HasSubstr("'a.weight.absmax' has dtype U8; it should be F32"));
  tensors = four_bit_tensors();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(tensors["a.weight.quant_map"].bytes.data() + 8, &nan, sizeof(nan));
  EXPECT_THAT(complaint(tensors), HasSubstr("'a.weight.quant_map' holds what is no number"));
  tensors = four_bit_tensors();
  tensors["a.weight"] = zeros_of(DType::kU8, {200, 1});
  EXPECT_THAT(complaint(tensors),
              HasSubstr("holds 400 codes of 4 bits, not those of a matrix [4, 128]"));
}

TEST(BitsandbytesTest, TextsThatDoNotFitAreNamed) {
  OwnedTensors tensors = four_bit_tensors();
  tensors[kState] = text_tensor("{\"shape\": ");
  EXPECT_THAT(complaint(tensors), HasSubstr(kState));
  EXPECT_THAT(complaint(four_bit_tensors({{"shape", {512}}})),
              HasSubstr("'shape' should be the rows and columns of a matrix"));
  EXPECT_THAT(
      complaint(four_bit_tensors({{"shape", {8, 64}}, {"blocksize", 128}})),
      HasSubstr("'a.weight.absmax' has shape [8], but for a matrix [8, 64] it should be [4]"));
  EXPECT_THAT(complaint(four_bit_tensors({{"blocksize", 0}})), HasSubstr("'blocksize'"));
  EXPECT_THAT(complaint(four_bit_tensors({{"nested_blocksize", 256}})),
              HasSubstr("'a.weight.absmax' has dtype F32; it should be U8"));
}

/// The library counts blocks through the whole matrix, whatever its rows: here the first one ends
/// within the fourth row of 20.
TEST(BitsandbytesTest, BlocksReachOverTheEndsOfRows) {
  OwnedTensors tensors = four_bit_tensors({{"shape", {5, 20}}});
  tensors["a.weight"] = zeros_of(DType::kU8, {50, 1});
  tensors["a.weight.absmax"] = zeros_of(DType::kF32, {2});
  for (size_t i = 0; i < 50; ++i) {
    tensors["a.weight"].bytes[i] = static_cast<std::byte>(7 * i);
  }
  std::array<float, 16> numbers{};
  for (size_t i = 0; i < 16; ++i) {
    numbers[i] = static_cast<float>(i) - 7.5F;
  }
  std::memcpy(tensors["a.weight.quant_map"].bytes.data(), numbers.data(), sizeof(numbers));
  const std::array<float, 2> largest = {0.25F, 3.0F};
  std::memcpy(tensors["a.weight.absmax"].bytes.data(), largest.data(), sizeof(largest));
  const json config = {
      {"quantization_config", {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}}}};
  const CompressedTensors read(in_memory(tensors),
                               parse_compression(config.dump(), "config.json").value());
  const TensorEntry* entry = read.find("a.weight");
  ASSERT_NE(entry, nullptr);
  ASSERT_EQ(entry->dtype, DType::kF32);
  read.provide(*entry);
  for (size_t i = 0; i < 100; ++i) {
    float value = 0.0F;
    std::memcpy(&value, entry->bytes.data() + i * sizeof(float), sizeof(float));
    const auto pair = std::to_integer<unsigned>(tensors["a.weight"].bytes[i / 2]);
    const unsigned code = i % 2 == 0 ? pair >> 4U : pair & 15U;
    EXPECT_EQ(value, numbers[code] * largest[i / 64]) << i;
  }
}

TEST(BitsandbytesTest, RowsOfEightBitsHaveTheirLargestValue) {
  const OwnedTensor codes = zeros_of(DType::kI8, {4, 32});
  const char* bits = "load_in_8bit";
  EXPECT_EQ(complaint({{"a.weight", codes}, {"a.SCB", zeros_of(DType::kF32, {4})}}, bits),
            "no error");
  OwnedTensor order = zeros_of(DType::kU8, {});
  OwnedTensors tensors = {
      {"a.weight", codes}, {"a.SCB", zeros_of(DType::kF32, {4})}, {"a.weight_format", order}};
  EXPECT_EQ(complaint(tensors, bits), "no error");
  tensors["a.weight_format"].bytes[0] = std::byte{2};
  EXPECT_THAT(complaint(tensors, bits),
              HasSubstr("'a.weight_format' says that the matrix is not saved row after row"));
  EXPECT_THAT(complaint({{"a.weight", codes}}, bits), HasSubstr("has no SCB beside it"));
  EXPECT_THAT(complaint({{"a.weight", codes}, {"a.SCB", zeros_of(DType::kF16, {4})}}, bits),
              HasSubstr("'a.SCB' has dtype F16; it should be F32"));
  EXPECT_THAT(complaint({{"a.weight", codes}}), HasSubstr("'a.weight' has dtype I8, but"));
  EXPECT_THAT(complaint({}, "llm_int8_enable_fp32_cpu_offload"),
              HasSubstr("neither load_in_4bit nor load_in_8bit"));
}

}  // namespace
}  // namespace specdec
