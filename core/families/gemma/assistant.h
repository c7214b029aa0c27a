#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "core/families/description.h"
#include "core/transformer/heads/assistant_head.h"
#include "core/transformer/heads/head_files.h"

namespace specdec {

/// What a config.json, or the metadata of a GGUF file, says of an assistant.
struct AssistantConfig {
  ModelDescription layers;
  HeadTarget trained_for;
  int64_t target_hidden = 0;
  int64_t clusters = 0;  ///< 0 = a dense head
  int64_t chosen = 0;
};
/// An assistant whose headers have been read.
struct OpenAssistant {
  AssistantConfig config;
  std::shared_ptr<const TensorFiles> tensors;
  bool is_gguf = false;
};
/// Whether a folder or file says that it is an assistant.
bool is_assistant(const std::filesystem::path& path);
/// Opens an assistant without its target, to look at. Throws as load_assistant.
OpenAssistant open_assistant(const std::filesystem::path& path);

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

/// Writes config.json and model.safetensors, with weights of `dtype`.
void save_assistant(const AssistantHead& head, const TransformerInfo& target,
                    const std::filesystem::path& folder, at::ScalarType dtype);

}  // namespace specdec
