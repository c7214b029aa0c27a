#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace specdec {

/// A resumed run must go on with the weights that it began with: throws Error when a fingerprint in
/// the folder's environment.json is another. `weights`: fingerprints by name; nothing is checked in
/// a folder without that file.
void check_weights(const std::filesystem::path& folder,
                   const std::map<std::string, std::string>& weights);

}  // namespace specdec
