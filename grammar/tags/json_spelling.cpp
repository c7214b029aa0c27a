#include "grammar/tags/json_spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "grammar/json/json_string_decoder.h"
#include "grammar/regex/code_points.h"

namespace specdec {
namespace {

/// How many there are at the beginning: they finish the character in whose middle it stands.
size_t continuation_bytes(std::string_view text) {
  const auto last = std::ranges::find_if_not(
      text, [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; });
  return last - text.begin();
}

}  // namespace

JsonSpelling json_spelling() {
  JsonSpelling written;
  for (uint32_t byte = 0; byte < written.size(); ++byte) {
    written[byte] = std::string(1, static_cast<char>(byte));
  }
  for (uint32_t control = 0; control < 0x20; ++control) {
    written[control] = fmt::format("\\u{:04x}", control);
  }
  written['\n'] = "\\n";
  written['\t'] = "\\t";
  written['\r'] = "\\r";
  written['\b'] = "\\b";
  written['\f'] = "\\f";
  written['"'] = "\\\"";
  written['\\'] = "\\\\";
  return written;
}

std::string plain_beginning(std::string_view json) {
  if (const size_t rest = continuation_bytes(json); rest > 0) {
    return std::string(json.substr(0, rest));
  }
  JsonStringDecoder decoder;
  std::string plain;
  for (const char byte : json) {
    std::optional<char32_t> point;
    if ((byte == '"' && decoder.idle()) ||
        !decoder.take(static_cast<uint8_t>(byte), Escapes(), point)) {
      break;
    }
    plain += point ? to_utf8(std::u32string_view(&*point, 1)) : "";
  }
  return plain;
}

}  // namespace specdec
