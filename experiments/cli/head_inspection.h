#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/formats/safetensors.h"
#include "core/transformer/plan.h"

namespace specdec {

/// What `inspect` says of the tensors of a checkpoint: how many, of what types and sizes.
nlohmann::json weights_json(const TensorFiles& tensors);
/// What `specdec inspect` says of a layer.
nlohmann::json layer_json(const LayerPlan& layer);

/// The type of the drafter that takes the head in a folder or GGUF file; "" for a model. Throws
/// WeightsError for heads that are not supported.
std::string inspected_head(const std::filesystem::path& path);
/// Describes a head of that type: config, target, weights. Loads none.
nlohmann::json inspect_head(const std::filesystem::path& path, const std::string& kind);

}  // namespace specdec
