#pragma once
#include <array>
#include <string>
#include <string_view>

namespace specdec {

/// How each byte of a string stands in JSON, with no more escapes than it needs.
using JsonSpelling = std::array<std::string, 256>;
JsonSpelling json_spelling();

/// The text that the rest of a JSON string begins with: up to the quote behind it, or to the end of
/// the character in whose middle it stands.
std::string plain_beginning(std::string_view json);

}  // namespace specdec
