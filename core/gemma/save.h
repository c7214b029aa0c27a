#pragma once
#include <filesystem>

#include "core/gemma/weights.h"

namespace specdec {

/// Writes config.json and model.safetensors (dtype float32 or bfloat16) under the names of the hub.
void save_gemma(const GemmaWeights& weights, const std::filesystem::path& folder,
                at::ScalarType dtype);

}  // namespace specdec
