#include "tests/support/lora_folder.h"

#include <fstream>

#include "core/formats/safetensors.h"

namespace specdec {

void write_lora(const std::filesystem::path& folder, const std::string& config,
                const std::vector<LoraMatrices>& matrices) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "adapter_config.json")
      << R"({"peft_type": "LORA", "bias": "none", )" << config << "}";
  std::vector<at::Tensor> values;
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const std::string& name, const at::Tensor& value) {
    if (!value.defined()) {
      return;
    }
    values.push_back(value.to(at::kFloat).contiguous());
    const auto* data = static_cast<const std::byte*>(values.back().const_data_ptr());
    tensors.push_back({"base_model.model." + name + ".weight",
                       DType::kF32,
                       value.sizes().vec(),
                       {data, static_cast<size_t>(values.back().nbytes())}});
  };
  for (const LoraMatrices& one : matrices) {
    add(one.path + ".lora_A", one.a);
    add(one.path + ".lora_B", one.b);
  }
  write_safetensors(folder / "adapter_model.safetensors", tensors);
}

}  // namespace specdec
