#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace specdec {

/// How byte-level vocabularies (GPT-2, Radford et al., 2019) write bytes as characters: those that
/// Latin-1 prints stand for themselves, the 68 others, in order, are U+0100 and on. A space is "Ġ",
/// a line feed "Ċ".
const std::array<std::string, 256>& byte_symbols();

/// `bytes` in these characters.
std::string to_byte_symbols(std::string_view bytes);
/// The inverse; nothing when a character is no symbol of a byte.
std::optional<std::string> from_byte_symbols(std::string_view text);

}  // namespace specdec
