#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace specdec {

struct JinjaToken {
  enum class Kind : uint8_t {
    kText,    ///< outside of tags
    kBegin,   ///< "{{" or "{%"
    kEnd,     ///< "}}" or "%}"
    kName,    ///< also and, in, true, ...
    kString,  ///< its value
    kInteger,
    kOperator,
    kEndOfTemplate
  };
  Kind kind = Kind::kEndOfTemplate;
  std::string text;
  int64_t line = 1;
};

/// The tokens of a template as jinja2 with trim_blocks and lstrip_blocks reads it, which
/// transformers uses; the last is kEndOfTemplate. Throws Error that begins with the line.
std::vector<JinjaToken> jinja_tokens(std::string_view source);

}  // namespace specdec
