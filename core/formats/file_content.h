#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace specdec {

/// Whether there is an entry of this name, which may also be a link to nothing. An optional file
/// that cannot be opened is then an error of its reader, instead of being taken for absent.
bool has_entry(const std::filesystem::path& path);

/// What a path names that is no regular file, to read of which could wait for ever: "a folder", "a
/// named pipe", "a device", "a socket". "" = a regular file, a link to one, or nothing.
std::string irregular_kind(const std::filesystem::path& path);

/// Throws a WeightsError that names the path where irregular_kind does.
void refuse_irregular(const std::filesystem::path& path);

/// Why a file could not be opened, by the error number of the attempt: ends the sentence
/// "FILE: cannot open: ".
std::string open_failure(const std::filesystem::path& path, int error);

/// What a file that is no GGUF file is by its content, whatever its name, and what to name as a
/// model instead: ends the sentence "FILE: ". For files that can be opened.
std::string advice_for_content(const std::filesystem::path& file);

/// What a download left in place of a file, by how the bytes begin: a pointer of Git LFS, a web
/// page or a server's message in XML, in any usual spelling. "" = nothing of the kind.
std::string placeholder_kind(std::string_view bytes);

/// Throws a WeightsError that names the file where its bytes are such a placeholder. Readers of
/// JSON (parse_strict_json), tokenizers, chat templates and weights do so.
void refuse_placeholder(std::string_view bytes, const std::string& where);
void refuse_placeholder(std::span<const std::byte> file, const std::string& where);

}  // namespace specdec
