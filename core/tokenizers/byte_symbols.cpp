#include "core/tokenizers/byte_symbols.h"

#include <unordered_map>

#include "core/formats/utf8.h"

namespace specdec {
namespace {

/// UTF-8 of a character below U+0800.
std::string short_utf8(unsigned character) {
  if (character < 0x80U) {
    return {static_cast<char>(character)};
  }
  return {static_cast<char>(0xC0U | character >> 6U), static_cast<char>(0x80U | (character & 63U))};
}

bool stands_for_itself(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

}  // namespace

const std::array<std::string, 256>& byte_symbols() {
  static const std::array<std::string, 256> symbols = [] {
    std::array<std::string, 256> all;
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      all.at(byte) = short_utf8(stands_for_itself(byte) ? byte : next++);
    }
    return all;
  }();
  return symbols;
}

std::string to_byte_symbols(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += byte_symbols().at(static_cast<unsigned char>(byte));
  }
  return text;
}

std::optional<std::string> from_byte_symbols(std::string_view text) {
  static const std::unordered_map<std::string_view, char> bytes = [] {
    std::unordered_map<std::string_view, char> all;
    for (unsigned byte = 0; byte < 256; ++byte) {
      all.emplace(byte_symbols().at(byte), static_cast<char>(byte));
    }
    return all;
  }();
  std::string out;
  while (!text.empty()) {
    const std::string_view character = text.substr(0, scan_utf8(text).bytes);
    const auto found = bytes.find(character);
    if (found == bytes.end()) {
      return std::nullopt;
    }
    out += found->second;
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace specdec
