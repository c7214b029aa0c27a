#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/families/description.h"

namespace specdec {

class ConfigNode;

/// Reads the key `model` of a training's config, a Gemma 3 or, with `family: gemma4`, a dense Gemma
/// 4: the text of its config.json, whose vocab_size is set by describe_shape.
std::string read_model_shape(const ConfigNode& node);

/// The same of a checkpoint folder whose weights a training starts from. Throws WeightsError for a
/// model that cannot be trained: only Gemma 3 and dense models of Gemma 4 are stored.
std::string checkpoint_shape(const std::filesystem::path& folder);

/// A shape's config.json with that vocabulary.
std::string shape_with_vocabulary(const std::string& shape, int64_t vocab_size);
/// What such a config.json describes.
ModelDescription describe_shape(const std::string& shape);

}  // namespace specdec
