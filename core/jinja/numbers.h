#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace specdec {

/// What the filter int makes of a text without white space around it: int(text), else
/// int(float(text)), as Python reads them ("1_000", "-4.7e1"); nothing where neither is possible.
/// Throws Error for characters outside ASCII, among which are other digits, and for what is no
/// int64_t.
std::optional<int64_t> parsed_int(std::string_view text);

/// A finite number as Python's repr() writes it: the shortest digits that give it back, "1.0".
std::string printed_float(double number);

}  // namespace specdec
