#pragma once
#include "experiments/config/yaml_tree.h"
#include "grammar/schema/json_value.h"

namespace specdec {

/// The JSON value that a config's YAML stands for. What is not quoted is a number, true or false
/// where YAML's core schema says so (True, 0x1F, .5, +1, 007), else a text.
JsonValue json_of(const YamlTree& tree);

}  // namespace specdec
