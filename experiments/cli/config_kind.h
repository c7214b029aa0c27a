#pragma once
#include <string>
#include <vector>

namespace specdec {

/// Throws ConfigError, naming the command for it, for a config that describes no experiment but a
/// training, or answers to train on: all of its other keys would be mistakes.
void refuse_training(const std::string& file, const std::vector<std::string>& overrides);

}  // namespace specdec
