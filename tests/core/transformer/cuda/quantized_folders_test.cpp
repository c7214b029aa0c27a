// Quantised folders on the ops of CUDA, in the form that they have in memory.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "core/formats/atomic_file.h"
#include "core/formats/safetensors.h"
#include "core/formats/safetensors_writer.h"
#include "core/formats/strict_json.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/quantizers.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

/// gemma3-a with quantised linear layers.
void write_quantized(const Quantizer& quantizer, const std::filesystem::path& folder) {
  const SafetensorsFile file(test_data("gemma3-a") / "model.safetensors");
  std::vector<TensorToWrite> tensors;
  std::vector<Tensor> kept;
  const auto add = [&](const std::string& name, DType dtype, const Tensor& values) {
    const Tensor& here = kept.emplace_back(values.contiguous());
    tensors.push_back({name,
                       dtype,
                       here.sizes().vec(),
                       {static_cast<const std::byte*>(here.const_data_ptr()), here.nbytes()}});
  };
  for (const TensorEntry& entry : file.tensors()) {
    const Tensor values = at::from_blob(const_cast<std::byte*>(entry.bytes.data()), entry.shape,
                                        at::TensorOptions(at::kFloat))
                              .clone();
    if (!entry.name.ends_with("_proj.weight")) {
      add(entry.name, DType::kF32, values);
      continue;
    }
    for (const auto& [end, tensor] : quantizer.quantize(values).tensors) {
      const bool of_module = end.starts_with('.');
      add((of_module ? entry.name.substr(0, entry.name.rfind('.')) : entry.name) + end,
          tensor.first, tensor.second);
    }
  }
  write_safetensors(folder / "model.safetensors", tensors);
  auto config = nlohmann::json::parse(read_file(test_data("gemma3-a") / "config.json"));
  config["quantization_config"] = quantizer.config;
  write_file(folder / "config.json", config.dump());
}

class CudaQuantizedTest : public testing::TestWithParam<Quantizer> {};

TEST_P(CudaQuantizedTest, LogitsFollowTheCpu) {
  const TemporaryFolder folder;
  write_quantized(GetParam(), folder.path());
  const auto weights = load_rows(folder.path());
  EXPECT_EQ(format_name(weights->layers[0].qkv.format()), GetParam().format);
  TransformerModel device(weights, paged_kv(), emulated());
  TransformerModel host(load_model(folder.path()), paged_kv());
  const TokenBatch batch = {.tokens = at::arange(3, 8, at::kInt)};
  EXPECT_LE(max_difference(device.forward(batch).logits, host.forward(batch).logits), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(All, CudaQuantizedTest,
                         testing::Values(fp8_rows(), int8_rows(), w4a16(false), w2a16_rows(),
                                         float4(Float4::kNvfp4), float4(Float4::kMxfp4),
                                         bitsandbytes_nf4()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace specdec
