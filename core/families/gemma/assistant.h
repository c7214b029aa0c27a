#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "core/transformer/heads/assistant_head.h"

namespace specdec {

/// Loads a Gemma 4 assistant (a folder of model_type "gemma4_assistant" or
/// "gemma4_unified_assistant", or a GGUF file of architecture "gemma4-assistant") for a target, on
/// the target's device. Without a dtype the matrices of a GGUF file stay in their formats. `note`
/// of the result says what to tell the user (see check_head_target). Throws WeightsError, naming
/// the key or tensor: another model_type, a target of another hidden size, vocabulary or geometry
/// of keys and values, missing or unknown tensors.
struct LoadedAssistant {
  std::shared_ptr<const AssistantHead> head;
  std::string note;
};
LoadedAssistant load_assistant(const std::filesystem::path& path, const TransformerInfo& target,
                               std::optional<at::ScalarType> dtype = std::nullopt);

/// Throws WeightsError, as load_assistant does for what config.json or the metadata says, and for
/// damaged headers; reads no weights.
void check_assistant(const std::filesystem::path& path, const TransformerConfig& target,
                     const std::vector<LayerPlan>& target_plan);

/// Writes config.json and model.safetensors, with weights of `dtype`.
void save_assistant(const AssistantHead& head, const TransformerInfo& target,
                    const std::filesystem::path& folder, at::ScalarType dtype);

}  // namespace specdec
