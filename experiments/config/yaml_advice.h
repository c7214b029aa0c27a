#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace specdec {

/// What is wrong with a text that is no YAML, and where.
struct YamlMistake {
  int64_t line = 0;  ///< from 1
  std::string message;
};

/// What a user should know of a text that yaml-cpp stopped in at `line`, with its message. A key
/// without ": " is looked for there and in the line above, which YAML takes for one text.
YamlMistake yaml_mistake(std::string_view text, int64_t line, const std::string& parser_message);

/// Line of the first byte that is no UTF-8; 0 = there is none.
int64_t line_without_utf8(std::string_view text);

}  // namespace specdec
