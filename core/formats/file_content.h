#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace specdec {

/// What a file that is no GGUF file is by its content, whatever its name, and what to name as a
/// model instead: ends the sentence "FILE: ". For files that can be opened.
std::string advice_for_content(const std::filesystem::path& file);

/// Throws a WeightsError that names the file where its bytes are those of a pointer of Git LFS or
/// of a web page, which a download left instead of the file.
void refuse_placeholder(std::span<const std::byte> file, const std::string& where);

}  // namespace specdec
