#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace specdec {

/// A line of JSON lines that hold texts: an object with a string "text". Throws ConfigError for
/// anything else, naming the line as `where`.
nlohmann::json parse_text_line(const std::string& line, const std::string& where);

/// Throws ConfigError for a text that is not UTF-8: it says which byte of `source` is no part of a
/// character, with `advice` at its end.
void require_utf8(std::string_view text, const std::string& source,
                  const std::string& advice = "give a text in UTF-8");

}  // namespace specdec
