#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

namespace specdec {

/// Matrices of a module that a test's adapter holds.
struct LoraMatrices {
  std::string path;  ///< "model.layers.0.self_attn.q_proj"
  at::Tensor a, b;   ///< [rank, in], [out, rank]; undefined = left out
};

/// Writes adapter_config.json (what `config` says, beside type and bias) and
/// adapter_model.safetensors as PEFT does.
void write_lora(const std::filesystem::path& folder, const std::string& config,
                const std::vector<LoraMatrices>& matrices);

}  // namespace specdec
