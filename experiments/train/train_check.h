#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace specdec {

/// What a training's config was found to be.
struct TrainCheck {
  std::string summary;                ///< one line: what is trained, on what, for how long
  std::vector<std::string> warnings;  ///< why it would not begin as things stand now
};

/// Checks the config of a training, of a model or a head, and its texts; loads no weights. Throws
/// ConfigError with all mistakes of the config, or for a folder `out` that train refuses, Error
/// when a text cannot be used.
TrainCheck check_training(const std::filesystem::path& file,
                          const std::vector<std::string>& overrides);

}  // namespace specdec
