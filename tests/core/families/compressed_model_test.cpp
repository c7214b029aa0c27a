// Folders of the library compressed-tensors as whole models.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
using testing::HasSubstr;

/// A golden model whose matrices become int8 with a scale for each row, and the model of the values
/// that these stand for.
class CompressedModelTest : public testing::Test {
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
      const Tensor scale = values.abs().amax(1, true) / 127.0;
      const Tensor codes = (values / scale).round().to(at::kChar);
      add(compressed_, entry.name, DType::kI8, codes);
      add(compressed_, entry.name + "_scale", DType::kF32, scale);
      add(plain_, entry.name, DType::kF32, codes.to(at::kFloat) * scale);
    }
    config_ = json::parse(read_file(test_data("gemma3-a") / "config.json"));
    write(plain_folder_, plain_, config_);
    config_["quantization_config"] =
        json::parse(read_file(test_data("compressed") / "int8/config.json"))["quantization_config"];
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

TEST_F(CompressedModelTest, ItHasTheBitsOfItsValues) {
  EXPECT_TRUE(at::equal(logits(folder_), logits(plain_folder_)));
  const LoadOptions narrow{.dtype = at::kBFloat16};
  EXPECT_TRUE(at::equal(logits(folder_, narrow), logits(plain_folder_, narrow)));
  EXPECT_EQ(measure_weights(open_model(folder_.path())),
            measure_weights(open_model(plain_folder_.path())));
}

TEST_F(CompressedModelTest, OtherMethodsAreRefused) {
  config_["quantization_config"]["quant_method"] = "gptq";
  write(folder_, compressed_, config_);
  EXPECT_THAT(error_message<WeightsError>([&] { load_model(folder_.path()); }),
              HasSubstr("quant_method 'gptq'"));
  config_["quantization_config"]["quant_method"] = "compressed-tensors";
  config_["quantization_config"]["format"] = "marlin-24";
  write(folder_, compressed_, config_);
  EXPECT_THAT(error_message<WeightsError>([&] { load_model(folder_.path()); }),
              HasSubstr("marlin-24"));
}

}  // namespace
}  // namespace specdec
