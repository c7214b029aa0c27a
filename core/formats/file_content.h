#pragma once
#include <filesystem>
#include <string>

namespace specdec {

/// What a file that is no GGUF file is by its content, whatever its name, and what to name as a
/// model instead: ends the sentence "FILE: ". For files that can be opened.
std::string advice_for_content(const std::filesystem::path& file);

}  // namespace specdec
