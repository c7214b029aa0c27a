// Quantised folders as whole models.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/families/model.h"
#include "core/families/model_size.h"
#include "core/formats/atomic_file.h"
#include "core/formats/strict_json.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/quantizers.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

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
        const bool of_module = end.starts_with('.');
        const std::string name =
            of_module ? entry.name.substr(0, entry.name.rfind('.')) : entry.name;
        add(compressed_, name + end, tensor.first, tensor.second);
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

TEST_P(CompressedModelTest, AGpuKeepsItsForm) {
  LoadOptions rows;
  rows.place.layout = WeightLayout::kRows;
  const auto weights = load_model(folder_.path(), rows);
  const std::string format = GetParam().format;
  EXPECT_EQ(format_name(weights->layers[0].qkv.format()), format);
  const auto plain = load_model(plain_folder_.path(), rows);
  EXPECT_TRUE(at::equal(weights->layers[1].qkv.unpack(), plain->layers[1].qkv.unpack()));
}

INSTANTIATE_TEST_SUITE_P(
    All, CompressedModelTest,
    testing::Values(int8_rows(), fp8_rows(), fp8_blocks(), w4a16(true), w4a16(false), w2a16_rows(),
                    float4(Float4::kNvfp4), float4(Float4::kModelopt), float4(Float4::kMxfp4),
                    bitsandbytes_nf4(), gptq("gptq", {}, "Q4_0"),
                    gptq("gptq_rows", {.group = 0, .symmetric = false}, "float32"),
                    gptq("gptq_8", {.bits = 8, .second = true}, "int8"),
                    gptq("gptq_2", {.bits = 2, .symmetric = false}, "float32"),
                    gptq("gptq_ordered", {.symmetric = false, .is_ordered = true}, "float32"),
                    awq(), mlx(4), mlx(8)),
    [](const auto& info) { return info.param.name; });

class BrokenMatrixTest : public CompressedModelTest {
 protected:
  /// The complaint about the folder after a change of the tensors.
  std::string complaint() {
    write(folder_, compressed_, config_);
    return error_message<WeightsError>([&] { load_model(folder_.path()); });
  }
  TensorToWrite& tensor(const std::string& end) {
    return *std::find_if(compressed_.begin(), compressed_.end(), [&](const TensorToWrite& each) {
      return each.name.ends_with("layers.0.mlp.up_proj" + end);
    });
  }
  void leave_out(const std::string& end) {
    const std::string name = tensor(end).name;
    std::erase_if(compressed_, [&](const TensorToWrite& each) { return each.name == name; });
  }
};

class BrokenFloat4Test : public BrokenMatrixTest {};

TEST_P(BrokenFloat4Test, ScalesThatDoNotFitAreNamed) {
  const TensorToWrite whole = tensor(".weight_global_scale");
  const Tensor zero = at::zeros({1});
  tensor(".weight_global_scale").bytes = {static_cast<const std::byte*>(zero.const_data_ptr()), 4};
  EXPECT_THAT(complaint(),
              HasSubstr("up_proj.weight_global_scale' is 0; it should be a number above 0"));
  const Tensor infinite = at::ones({1}) / zero;
  tensor(".weight_global_scale").bytes = {static_cast<const std::byte*>(infinite.const_data_ptr()),
                                          4};
  EXPECT_THAT(complaint(), HasSubstr("is inf; it should be a number above 0"));
  leave_out(".weight_global_scale");
  EXPECT_THAT(complaint(), HasSubstr("has no scale of the whole matrix beside it"));
  compressed_.push_back(whole);
  tensor(".weight_scale").dtype = DType::kU8;
  EXPECT_THAT(complaint(), HasSubstr("has dtype U8; the scales of this format are F8_E4M3"));
}

INSTANTIATE_TEST_SUITE_P(All, BrokenFloat4Test, testing::Values(float4(Float4::kNvfp4)),
                         [](const auto& info) { return info.param.name; });

class BrokenMlxTest : public BrokenMatrixTest {};

TEST_P(BrokenMlxTest, CodesOfWhichConfigJsonSaysNothingAreSuspected) {
  config_.erase("quantization");
  config_.erase("quantization_config");
  EXPECT_THAT(complaint(), HasSubstr("has shape ["));
  EXPECT_THAT(complaint(), HasSubstr(".scales', so these may be codes of a quantised matrix"));
}

INSTANTIATE_TEST_SUITE_P(All, BrokenMlxTest, testing::Values(mlx(4)),
                         [](const auto& info) { return info.param.name; });

class BrokenGptqTest : public BrokenMatrixTest {};

TEST_P(BrokenGptqTest, TensorsThatDoNotFitAreNamed) {
  const TensorToWrite scales = tensor(".scales");
  leave_out(".scales");
  EXPECT_THAT(complaint(), HasSubstr("up_proj.qweight' has no scales beside it"));
  compressed_.push_back(scales);
  tensor(".scales").dtype = DType::kI16;
  EXPECT_THAT(complaint(), HasSubstr("up_proj.scales' has dtype I16; it should be F16 or BF16"));
  tensor(".scales") = scales;
  tensor(".qzeros").shape = {tensor(".qzeros").shape[1], tensor(".qzeros").shape[0]};
  EXPECT_THAT(complaint(), HasSubstr("up_proj.qzeros' has shape ["));
  config_["quantization_config"]["bits"] = 3;
  EXPECT_THAT(complaint(), HasSubstr("'bits' is 3, which is not supported; known: 2, 4, 8"));
}

/// AutoGPTQ writes the description into a file of its own, without the method's name.
TEST_P(BrokenGptqTest, ADescriptionBesideTheConfigIsRead) {
  const Tensor wanted = logits(folder_);
  json own = config_["quantization_config"];
  own.erase("quant_method");
  write_file(folder_.path() / "quantize_config.json", own.dump());
  config_.erase("quantization_config");
  write(folder_, compressed_, config_);
  EXPECT_TRUE(at::equal(logits(folder_), wanted));
  own["bits"] = 3;
  write_file(folder_.path() / "quantize_config.json", own.dump());
  EXPECT_THAT(complaint(), HasSubstr("quantize_config.json: 'bits' is 3"));
}

TEST_P(BrokenGptqTest, BiasesOfZerosAreLeftOutAndOthersAreNot) {
  const Tensor wanted = logits(folder_);
  Tensor bias = at::zeros({tensor(".scales").shape[1]}, at::kHalf);
  add(compressed_, "model.layers.0.mlp.up_proj.bias", DType::kF16, bias);
  write(folder_, compressed_, config_);
  EXPECT_TRUE(at::equal(logits(folder_), wanted));
  kept_.back().fill_(0.5);
  EXPECT_THAT(complaint(), HasSubstr("up_proj.bias' (and 0 more) belongs to no layer"));
}

TEST_P(BrokenGptqTest, GroupsThatAreNoneAreNamed) {
  const int64_t columns = tensor(".g_idx").shape[0];
  const Tensor groups = at::full({columns}, 1000, at::kInt);
  tensor(".g_idx").bytes = {static_cast<const std::byte*>(groups.const_data_ptr()),
                            groups.nbytes()};
  EXPECT_THAT(complaint(), HasSubstr("up_proj.g_idx' names group 1000 of"));
}

INSTANTIATE_TEST_SUITE_P(All, BrokenGptqTest, testing::Values(gptq("gptq", {}, "Q4_0")),
                         [](const auto& info) { return info.param.name; });

/// The error for a model of torchao with matrices that it does not know, beside its own, which are
/// plain.
std::string complaint_of_torchao(const std::vector<std::string>& more,
                                 const std::map<std::string, std::string>& metadata) {
  const SafetensorsFile file(test_data("gemma3-a") / "model.safetensors");
  std::vector<TensorToWrite> tensors;
  for (const TensorEntry& entry : file.tensors()) {
    tensors.push_back({entry.name, entry.dtype, entry.shape, entry.bytes});
  }
  const std::vector<std::byte> codes(64);
  for (const std::string& name : more) {
    tensors.push_back({name, DType::kI8, {2, 32}, codes});
  }
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "model.safetensors", tensors, metadata);
  json config = json::parse(read_file(test_data("gemma3-a") / "config.json"));
  config["quantization_config"] = {{"quant_method", "torchao"}};
  write_file(folder.path() / "config.json", config.dump());
  return error_message<WeightsError>([&] { load_model(folder.path()); });
}

TEST(TorchaoModelTest, MatricesThatNobodyReadsAreNamed) {
  const std::string unknown = R"({"_type": "UnheardOfTensor", "_data": {}})";
  const std::string module = "model.layers.0.self_attn.g_proj.";
  const std::string vision = "vision_tower.encoder.";
  EXPECT_EQ(complaint_of_torchao({vision + "_weight_qdata"}, {{vision + "weight", unknown}}),
            "no error");
  const auto left = HasSubstr(module + "_weight_qdata' (and 0 more) belongs to no layer");
  EXPECT_THAT(complaint_of_torchao({module + "_weight_qdata"}, {{module + "weight", unknown}}),
              left);
  EXPECT_THAT(complaint_of_torchao({module + "_weight_qdata"}, {}), left);
}

class RefusedMethodTest : public CompressedModelTest {};

TEST_P(RefusedMethodTest, OtherMethodsAreRefused) {
  for (const char* method : {"hqq", "aqlm"}) {
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
