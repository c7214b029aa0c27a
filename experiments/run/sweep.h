#pragma once
#include <memory>
#include <string>
#include <vector>

#include "experiments/config/config_node.h"

namespace specdec {

/// One value for each swept key.
struct Combination {
  std::string label;      ///< "draft_length=4, temperature=0.8"
  std::string condition;  ///< the part of the label that is_condition: "temperature=0.8"
  std::string choice;     ///< the rest: "draft_length=4"
  std::vector<std::string> values;
  std::vector<std::shared_ptr<YamlTree>> trees;
};

/// The grid of a config's `sweep`: dotted keys, each with a list of values.
struct Sweep {
  std::vector<std::string> keys;
  std::vector<std::string> places;
  std::vector<Combination> combinations;  ///< the last key changes fastest; empty without keys
};

/// True for a key that can change the output or the time of plain decoding in the same environment:
/// strategies are compared under each of its values. The others are choices among strategies: their
/// own keys, and what is recorded of them.
bool is_condition(const std::string& key);

/// Reads root's `sweep`; a missing one has no keys. Notes mistakes: values that are no list, an
/// empty list, more than 1000 combinations.
Sweep read_sweep(const ConfigNode& root);

/// Sets a combination's values in a copy of the config. A key that leads nowhere is a mistake.
void apply_combination(YamlTree& root, const Sweep& sweep, const Combination& combination,
                       ConfigErrors& errors);

}  // namespace specdec
