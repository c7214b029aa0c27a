#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/families/description.h"

namespace specdec {

class ConfigNode;

/// Reads the key `model` of a training's config, a Gemma 3 or, with `family: gemma4`, a Gemma 4,
/// dense or with `experts`, or, with `family: recurrent_gemma`, a RecurrentGemma: the text of its
/// config.json, whose vocab_size is set by describe_shape.
std::string read_model_shape(const ConfigNode& node);

/// The text of config.json of a checkpoint folder whose weights a training starts from. Throws
/// WeightsError for a model that cannot be trained: only Gemma 3, Gemma 4 without shared keys and
/// values and without per-layer inputs, and RecurrentGemma with a tied head are stored.
std::string checkpoint_shape(const std::filesystem::path& folder);

/// Whether a shape's layers have experts.
bool has_experts(const std::string& shape);
/// A shape's config.json with that vocabulary.
std::string shape_with_vocabulary(const std::string& shape, int64_t vocab_size);
/// What such a config.json describes.
ModelDescription describe_shape(const std::string& shape);

}  // namespace specdec
