#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/config/config_node.h"

namespace specdec {

/// A LoRA folder that is applied to a model, and how strongly.
struct AdapterChoice {
  std::filesystem::path path;
  double scale = 1.0;
};

/// "DIR" or "DIR:SCALE", as --adapter takes it. Throws ConfigError for a folder that is not there
/// and a scale that is no finite number.
AdapterChoice parse_adapter(const std::string& text);
/// The inverse.
std::string adapter_text(const AdapterChoice& adapter);
/// The list `adapters` of a model's config: maps of path and scale. An adapter_config.json that
/// cannot be used is a mistake.
std::vector<AdapterChoice> read_adapters(const ConfigNode& model);

}  // namespace specdec
