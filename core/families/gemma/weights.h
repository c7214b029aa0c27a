#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

#include "core/transformer/weights.h"

namespace specdec {

/// Writes config.json and model.safetensors (dtype float32 or bfloat16) under the names of the hub.
/// For Gemma 1 to 3, Gemma 4 without shared keys and per-layer inputs, and RecurrentGemma, whose
/// `config_json` is written as it is but for its dtype.
void save_gemma(const TransformerTensors& weights, const std::string& config_json,
                const std::filesystem::path& folder, at::ScalarType dtype);

}  // namespace specdec
