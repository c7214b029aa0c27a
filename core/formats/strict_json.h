#pragma once
#include <exception>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace specdec {

/// Parses JSON text. Throws WeightsError "where:line:column: ..." when it is not JSON or not UTF-8,
/// when it has a number that no double holds, and when an object has a key twice, which most
/// readers would take silently.
nlohmann::json parse_strict_json(std::string_view text, const std::string& where);

/// Parses a text of one line, as of a .jsonl file, by the same rules. Throws what
/// plain_json_message says in plain words.
nlohmann::json parse_json_line(std::string_view line);

/// The error for text that is not JSON: `what` is the JSON library's message, `byte` where it
/// stopped, counted from one.
[[noreturn]] void throw_json_error(std::string_view text, const std::string& where, size_t byte,
                                   const std::string& what);

/// What a JSON library's exception says of a value or of a text of one line, in plain words: "the
/// key 'tokens' is missing", "a value must be a number, but is a string", "column 5: invalid
/// literal". Of another exception what it says.
std::string plain_json_message(const std::exception& exception);

/// Deepest nesting that is read: far more than any file of a checkpoint needs.
inline constexpr int kMaxJsonDepth = 200;

/// The bytes of a regular file. Throws WeightsError when it is none or cannot be read.
std::string read_file(const std::filesystem::path& path);

}  // namespace specdec
