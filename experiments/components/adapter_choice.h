#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/config/config_node.h"

namespace specdec {

/// A LoRA folder that is applied to a model, and how strongly.
struct AdapterChoice {
  std::filesystem::path path;
  double scale = 1.0;
  std::string name = {};  ///< by which prompts ask for it; "" = it is applied to all
};

/// "DIR" or "DIR:SCALE", as --adapter takes it. Throws ConfigError for a folder that is not there
/// and a scale that is no finite number.
AdapterChoice parse_adapter(const std::string& text);
/// The text that parse_adapter reads as `adapter`.
std::string adapter_text(const AdapterChoice& adapter);
/// Adapters of a request that asks for `names`: those without a name and those it names, in the
/// order of `all`.
std::vector<AdapterChoice> adapters_for(const std::vector<AdapterChoice>& all,
                                        const std::vector<std::string>& names);
/// Why a request cannot ask for these names; "" when it can.
std::string unknown_adapter(const std::vector<AdapterChoice>& all,
                            const std::vector<std::string>& names);
/// The list `adapters` of a model's config: maps of name, path and scale. An adapter_config.json
/// that cannot be used is a mistake.
std::vector<AdapterChoice> read_adapters(const ConfigNode& model);
/// The key `adapter` of a component: a folder, or a map of path and scale; none without it. What
/// the folder holds is not looked at.
std::optional<AdapterChoice> read_adapter(const ConfigNode& node);

}  // namespace specdec
