#pragma once
#include <cstddef>
#include <filesystem>
#include <string>

namespace specdec {

/// The extension of what a file holds: that before a last ".gz".
std::filesystem::path text_extension(const std::filesystem::path& file);

/// The text of a gzip file. Throws ConfigError, naming the file: no gzip, damaged, cut off, a text
/// of more than `max_bytes`.
std::string read_gzip_file(const std::filesystem::path& file, size_t max_bytes);

}  // namespace specdec
