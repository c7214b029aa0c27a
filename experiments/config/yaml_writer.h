#pragma once
#include <string>

#include "experiments/config/yaml_tree.h"

namespace specdec {

/// The tree as YAML in block style; parse_yaml reads it back.
std::string write_yaml(const YamlTree& tree);

/// Writes YAML on one line: {type: speculative, draft_length: 5}.
std::string write_yaml_flow(const YamlTree& tree);

}  // namespace specdec
