// Folders of the library compressed-tensors as whole models.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/atomic_file.h"
#include "core/formats/strict_json.h"
#include "core/transformer/transformer_model.h"
#include "kv/kv_cache.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

/// What a checkpoint holds of a matrix: tensors by the ends of their names; and the values.
struct QuantizedMatrix {
  std::map<std::string, std::pair<DType, Tensor>> tensors;
  Tensor values;
};

/// A way to store matrices, and the key of config.json that says it.
struct Quantizer {
  std::string name;
  std::function<QuantizedMatrix(const Tensor&)> quantize;
  json config;
  std::string format = "float32";  ///< that matrices should have in memory
};

void PrintTo(const Quantizer& quantizer, std::ostream* out) { *out << quantizer.name; }

json compressed_tensors(const std::string& format, const json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}},
          {"ignore", {"lm_head"}}};
}

/// int8 with a scale for each row.
Quantizer int8_rows() {
  const auto quantize = [](const Tensor& values) {
    const Tensor scale = values.abs().amax(1, true) / 127.0;
    const Tensor codes = (values / scale).round().to(at::kChar);
    return QuantizedMatrix{{{"", {DType::kI8, codes}}, {"_scale", {DType::kF32, scale}}},
                           codes.to(at::kFloat) * scale};
  };
  return {
      "int8", quantize,
      json::parse(read_file(test_data("compressed") / "int8/config.json"))["quantization_config"]};
}

/// FP8 with a scale for each part of so many rows and columns.
QuantizedMatrix quantize_fp8(const Tensor& values, int64_t rows, int64_t columns,
                             const char* scale_name) {
  const int64_t height = values.size(0);
  const int64_t width = values.size(1);
  const Tensor padded = at::constant_pad_nd(
      values, {0, (columns - width % columns) % columns, 0, (rows - height % rows) % rows});
  const Tensor parts = padded.abs().unflatten(1, {-1, columns}).unflatten(0, {-1, rows});
  const Tensor scale = parts.amax({1, 3}) / 448.0;
  const Tensor scales = scale.repeat_interleave(rows, 0)
                            .repeat_interleave(columns, 1)
                            .narrow(0, 0, height)
                            .narrow(1, 0, width);
  const Tensor codes = (values / scales).to(at::kFloat8_e4m3fn);
  return {{{"", {DType::kF8E4M3, codes}}, {scale_name, {DType::kF32, scale}}},
          codes.to(at::kFloat) * scales};
}

Quantizer fp8_rows() {
  return {"fp8_rows",
          [](const Tensor& values) { return quantize_fp8(values, 1, values.size(1), "_scale"); },
          compressed_tensors("float-quantized",
                             {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}}),
          "FP8_32"};
}

/// The method of DeepSeek and Qwen.
Quantizer fp8_blocks() {
  return {"fp8_blocks",
          [](const Tensor& values) { return quantize_fp8(values, 32, 32, "_scale_inv"); },
          {{"quant_method", "fp8"},
           {"fmt", "e4m3"},
           {"activation_scheme", "dynamic"},
           {"weight_block_size", {32, 32}},
           {"modules_to_not_convert", {"lm_head"}}},
          "FP8_32"};
}

/// Integers of 0 to 15, eight in a word, the first one lowest, along a dimension.
Tensor packed(const Tensor& codes, int64_t dim) {
  const Tensor shifts = at::arange(0, 32, 4, at::kLong);
  const Tensor apart = codes.to(at::kLong).transpose(dim, 1).unflatten(1, {-1, 8});
  return at::bitwise_left_shift(apart, shifts).sum(2).to(at::kInt).transpose(dim, 1);
}

QuantizedMatrix quantize_int4(const Tensor& values, bool symmetric) {
  const Tensor groups = values.unflatten(1, {-1, 32});
  const Tensor low = symmetric ? -groups.abs().amax(2) : groups.amin(2).clamp_max(0.0);
  const Tensor high = symmetric ? groups.abs().amax(2) : groups.amax(2).clamp_min(0.0);
  const Tensor scale = ((high - low) / 15.0).to(at::kBFloat16);
  const Tensor wide = scale.to(at::kFloat);
  const Tensor zero = symmetric ? at::full_like(wide, 8.0) : (-low / wide).round().clamp(0.0, 15.0);
  const Tensor codes = ((groups / wide.unsqueeze(2)).round() + zero.unsqueeze(2)).clamp(0.0, 15.0);
  QuantizedMatrix matrix;
  matrix.values = ((codes - zero.unsqueeze(2)) * wide.unsqueeze(2)).flatten(1);
  matrix.tensors = {{"_packed", {DType::kI32, packed(codes.flatten(1), 1)}},
                    {"_scale", {DType::kBF16, scale}},
                    {"_shape", {DType::kI64, at::tensor(values.sizes(), at::kLong)}}};
  if (!symmetric) {
    matrix.tensors["_zero_point"] = {DType::kI32, packed(zero, 0)};
  }
  return matrix;
}

Quantizer w4a16(bool symmetric) {
  return {symmetric ? "w4a16" : "w4a16_asymmetric",
          [symmetric](const Tensor& values) { return quantize_int4(values, symmetric); },
          compressed_tensors("pack-quantized", {{"num_bits", 4},
                                                {"type", "int"},
                                                {"strategy", "group"},
                                                {"group_size", 32},
                                                {"symmetric", symmetric},
                                                {"actorder", "weight"}}),
          "INT4_32"};
}

/// A golden model whose linear layers are quantised, and the model of the values that these stand
/// for.
class CompressedModelTest : public testing::TestWithParam<Quantizer> {
 protected:
  void SetUp() override {
    const SafetensorsFile file(test_data("gemma3-a") / "model.safetensors");
    for (const TensorEntry& entry : file.tensors()) {
      const Tensor values = at::from_blob(const_cast<std::byte*>(entry.bytes.data()), entry.shape,
                                          at::TensorOptions(at::kFloat))
                                .clone();
      const bool is_linear = entry.name.find("_proj.weight") != std::string::npos;
      if (!is_linear) {
        add(compressed_, entry.name, DType::kF32, values);
        add(plain_, entry.name, DType::kF32, values);
        continue;
      }
      const QuantizedMatrix matrix = GetParam().quantize(values);
      for (const auto& [end, tensor] : matrix.tensors) {
        add(compressed_, entry.name + end, tensor.first, tensor.second);
      }
      add(plain_, entry.name, DType::kF32, matrix.values);
    }
    config_ = json::parse(read_file(test_data("gemma3-a") / "config.json"));
    write(plain_folder_, plain_, config_);
    config_["quantization_config"] = GetParam().config;
    write(folder_, compressed_, config_);
  }

  void add(std::vector<TensorToWrite>& list, const std::string& name, DType dtype,
           const Tensor& values) {
    const Tensor& kept = kept_.emplace_back(values.contiguous());
    list.push_back({name,
                    dtype,
                    kept.sizes().vec(),
                    {static_cast<const std::byte*>(kept.const_data_ptr()), kept.nbytes()}});
  }

  static void write(const TemporaryFolder& folder, const std::vector<TensorToWrite>& tensors,
                    const json& config) {
    write_safetensors(folder.path() / "model.safetensors", tensors);
    write_file(folder.path() / "config.json", config.dump());
  }

  static Tensor logits(const TemporaryFolder& folder, const LoadOptions& options = {}) {
    return TransformerModel(load_model(folder.path(), options), paged_kv())
        .forward({.tokens = at::arange(3, 20, at::kInt)})
        .logits;
  }

  TemporaryFolder folder_, plain_folder_;
  std::vector<TensorToWrite> compressed_, plain_;
  std::vector<Tensor> kept_;
  json config_;
};

TEST_P(CompressedModelTest, ItHasTheBitsOfItsValues) {
  EXPECT_TRUE(at::equal(logits(folder_), logits(plain_folder_)));
  const LoadOptions narrow{.dtype = at::kBFloat16};
  EXPECT_TRUE(at::equal(logits(folder_, narrow), logits(plain_folder_, narrow)));
}

TEST_P(CompressedModelTest, ItStaysNearItsValuesInFloat64) {
  const Tensor exact = logits(plain_folder_, {.dtype = at::kDouble});
  EXPECT_LT((logits(folder_).to(at::kDouble) - exact).abs().max().item<double>(), 1e-4);
}

TEST_P(CompressedModelTest, ItsMatricesAreAsSmallAsSaid) {
  const OpenModel open = open_model(folder_.path());
  const auto sizes = measure_weights(open);
  EXPECT_EQ(sizes.count(GetParam().format), 1U);
  const auto weights = load_model(open);
  EXPECT_EQ(format_name(weights->layers[0].qkv.format()), GetParam().format);
  int64_t bytes = weights->embedding.bytes();
  for (const LayerWeights& layer : weights->layers) {
    for (const Linear* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      bytes += matrix->bytes();
    }
  }
  int64_t said = 0;
  for (const auto& [format, size] : sizes) {
    said += size;
  }
  EXPECT_EQ(said, bytes);
}

TEST_P(CompressedModelTest, WhatIsReadIsNotKeptTwice) {
  const OpenModel open = open_model(folder_.path());
  const auto weights = load_model(open);
  for (const TensorEntry* entry : open.tensors->tensors()) {
    const bool is_linear = entry->name.find("_proj.weight") != std::string::npos;
    EXPECT_EQ(entry->bytes.empty(), is_linear) << entry->name;
  }
}

TEST_P(CompressedModelTest, OtherDevicesGetTheValues) {
  LoadOptions rows;
  rows.place.layout = WeightLayout::kRows;
  EXPECT_EQ(measure_weights(open_model(folder_.path()), rows),
            measure_weights(open_model(plain_folder_.path()), rows));
  const auto weights = load_model(folder_.path(), rows);
  const auto plain = load_model(plain_folder_.path(), rows);
  EXPECT_TRUE(at::equal(weights->layers[1].qkv.unpack(), plain->layers[1].qkv.unpack()));
}

INSTANTIATE_TEST_SUITE_P(All, CompressedModelTest,
                         testing::Values(int8_rows(), fp8_rows(), fp8_blocks(), w4a16(true),
                                         w4a16(false)),
                         [](const auto& info) { return info.param.name; });

class RefusedMethodTest : public CompressedModelTest {};

TEST_P(RefusedMethodTest, OtherMethodsAreRefused) {
  for (const char* method : {"gptq", "awq"}) {
    config_["quantization_config"]["quant_method"] = method;
    write(folder_, compressed_, config_);
    EXPECT_THAT(error_message<WeightsError>([&] { load_model(folder_.path()); }),
                AllOf(HasSubstr(fmt::format("quant_method '{}'", method)),
                      HasSubstr("use the original checkpoint, one of compressed-tensors")));
  }
  config_["quantization_config"]["quant_method"] = "compressed-tensors";
  config_["quantization_config"]["format"] = "marlin-24";
  write(folder_, compressed_, config_);
  EXPECT_THAT(error_message<WeightsError>([&] { load_model(folder_.path()); }),
              HasSubstr("marlin-24"));
}

INSTANTIATE_TEST_SUITE_P(All, RefusedMethodTest, testing::Values(int8_rows()),
                         [](const auto& info) { return info.param.name; });

class LeftOutRoundingTest : public CompressedModelTest {};

TEST_P(LeftOutRoundingTest, ScalesOfActivationsAndCachesAreNotReadAndThatIsSaid) {
  const Tensor plain = logits(folder_);
  EXPECT_THAT(open_model(folder_.path()).notes, testing::IsEmpty());
  add(compressed_, "model.layers.0.self_attn.q_proj.input_scale", DType::kF32, at::ones({1}));
  add(compressed_, "model.layers.0.self_attn.k_scale", DType::kF32, at::ones({1}));
  json& keys = config_["quantization_config"];
  keys["kv_cache_scheme"] = {{"num_bits", 8}, {"type", "float"}};
  keys["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8}, {"dynamic", false}};
  write(folder_, compressed_, config_);
  EXPECT_TRUE(at::equal(logits(folder_), plain));
  EXPECT_THAT(open_model(folder_.path()).notes,
              testing::ElementsAre(HasSubstr("stay float32"), HasSubstr("kv_cache_scheme")));
}

INSTANTIATE_TEST_SUITE_P(All, LeftOutRoundingTest, testing::Values(fp8_rows()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace specdec
