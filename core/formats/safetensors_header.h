#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/safetensors.h"

namespace specdec {

/// Reads and checks the header of a whole .safetensors file in memory, as SafetensorsFile does with
/// a mapped one. The entries are in the order of their data and point into `file`.
std::vector<TensorEntry> parse_safetensors(std::span<const std::byte> file,
                                           const std::string& where,
                                           std::map<std::string, std::string>& metadata);

inline constexpr size_t kLengthBytes = 8;  ///< the file's first bytes: length of the JSON header
inline constexpr std::string_view kMetadataKey = "__metadata__";
inline constexpr std::string_view kDamagedFile = "The file is damaged: copy or download it again.";

}  // namespace specdec
