#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "core/families/gemma/config.h"
#include "core/families/gemma/plan.h"
#include "core/families/model.h"

namespace specdec {

/// Writes config.json and model.safetensors (dtype float32 or bfloat16) under the names of the hub.
void save_gemma(const TransformerTensors& weights, const std::filesystem::path& folder,
                at::ScalarType dtype);

/// The same of a dense Gemma 4, whose config.json is given, but for its dtype.
void save_gemma4(const TransformerTensors& weights, const std::string& config_json,
                 const std::filesystem::path& folder, at::ScalarType dtype);

/// random_model of a Gemma.
std::shared_ptr<TransformerTensors> random_gemma(const GemmaConfig& config,
                                                 const RandomWeightsOptions& options = {});

}  // namespace specdec
