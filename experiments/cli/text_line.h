#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace specdec {

/// A line of JSON lines that hold texts: an object with a string "text". Throws ConfigError for
/// anything else, naming the line as `where`.
nlohmann::json parse_text_line(const std::string& line, const std::string& where);

}  // namespace specdec
