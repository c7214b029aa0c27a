#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

namespace specdec {

/// What the bytes at the start of a text are.
struct Utf8Scan {
  size_t bytes = 0;     ///< length of the character, or of the part that cannot become one
  bool valid = false;   ///< a whole well-formed character (Unicode 15, table 3-7)
  bool prefix = false;  ///< not valid, but the beginning of one that more bytes could complete
};

/// Looks at the first character of a text that is not empty.
Utf8Scan scan_utf8(std::string_view text);

/// True when the whole text is well-formed UTF-8.
bool is_utf8(std::string_view text);

/// A longest part of a text that is well-formed throughout, or not at all.
struct Utf8Run {
  std::string_view text;
  bool valid = true;
};

/// Splits a text into such parts, valid and invalid ones by turns.
std::vector<Utf8Run> utf8_runs(std::string_view text);

}  // namespace specdec
