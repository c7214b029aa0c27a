#include "grammar/json/json_string_decoder.h"

#include <algorithm>
#include <string_view>

#include "grammar/regex/utf8_decoder.h"

namespace specdec {
namespace {

using Phase = JsonStringDecoder::Phase;
using Range = CodePoints::Range;

constexpr std::string_view kLetters = "\"\\/bfnrt";
constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";

int hex_digit(uint8_t byte) {
  if (byte >= '0' && byte <= '9') {
    return byte - '0';
  }
  const int lower = byte | 0x20;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool has_letter(char32_t c) {
  return c < 0x80 && kMeanings.find(static_cast<char>(c)) != std::string_view::npos;
}

/// What \uXXXX may stand for.
bool may_be_hex(char32_t c, const Escapes& escapes) {
  return escapes.all() || (c < 0x20 && !has_letter(c)) ||
         (escapes.unspelled != nullptr && escapes.unspelled->contains(c));
}

void add(std::vector<Range>& ranges, uint32_t first, uint32_t last, uint32_t low, uint32_t high) {
  first = std::max(first, low);
  last = std::min(last, high);
  if (first <= last) {
    ranges.push_back({first, last});
  }
}

/// A range without the surrogates.
std::vector<Range> characters(uint32_t first, uint32_t last) {
  std::vector<Range> ranges;
  add(ranges, first, last, 0, 0xD7FF);
  add(ranges, first, last, 0xE000, CodePoints::kLast);
  return ranges;
}

/// Adds the characters from `low` to `high` that only their number spells.
void add_unspelled(std::vector<Range>& ranges, const Escapes& escapes, uint32_t low,
                   uint32_t high) {
  if (escapes.unspelled != nullptr) {
    for (const Range& range : escapes.unspelled->ranges()) {
      add(ranges, range.first, range.last, low, high);
    }
  }
}

uint32_t above_bmp(uint32_t high) { return 0x10000 + ((high - 0xD800) << 10); }

Utf8Decoder utf8_of(const JsonStringDecoder& decoder) {
  return {decoder.value, decoder.more, decoder.size};
}

bool take_utf8(JsonStringDecoder& decoder, uint8_t byte, std::optional<char32_t>& point) {
  Utf8Decoder utf8 = utf8_of(decoder);
  const bool alive = utf8.take(byte, point);
  decoder = {utf8.idle() ? Phase::kNone : Phase::kUtf8, static_cast<uint8_t>(utf8.more),
             static_cast<uint8_t>(utf8.size), utf8.value};
  return alive;
}

bool take_lead(JsonStringDecoder& decoder, uint8_t byte, std::optional<char32_t>& point) {
  if (byte < 0x20 || byte == '"') {
    return false;
  }
  if (byte == '\\') {
    decoder.phase = Phase::kBackslash;
    return true;
  }
  return take_utf8(decoder, byte, point);
}

bool take_escape(JsonStringDecoder& decoder, uint8_t byte, const Escapes& escapes,
                 std::optional<char32_t>& point) {
  if (byte == 'u') {
    decoder = {Phase::kHex, 4, 0, 0};
    return true;
  }
  const size_t which = kLetters.find(static_cast<char>(byte));
  if (which == std::string_view::npos || (byte == '/' && !escapes.all())) {
    return false;
  }
  point = static_cast<char32_t>(kMeanings[which]);
  decoder = {};
  return true;
}

bool take_hex(JsonStringDecoder& decoder, uint8_t byte, const Escapes& escapes,
              std::optional<char32_t>& point) {
  const int digit = hex_digit(byte);
  if (digit < 0) {
    return false;
  }
  const bool low = decoder.phase == Phase::kLowHex;
  const uint32_t high = decoder.value & 0xFFFF0000U;
  decoder.value = high | (decoder.value & 0xFFFF) << 4 | static_cast<uint32_t>(digit);
  --decoder.more;
  if (decoder.more > 0) {
    return !decoder.reach(escapes).empty();
  }
  const uint32_t code = decoder.value & 0xFFFF;
  if (low) {
    const bool valid = code >= 0xDC00 && code <= 0xDFFF;
    point = above_bmp(high >> 16) + (code - 0xDC00);
    decoder = {};
    return valid && may_be_hex(*point, escapes);
  }
  if (code >= 0xD800 && code <= 0xDBFF) {
    decoder = {Phase::kLowSlash, 0, 0, code};
    return !decoder.reach(escapes).empty();
  }
  point = code;
  decoder = {};
  return (code < 0xD800 || code > 0xDFFF) && may_be_hex(code, escapes);
}

/// What \u and some digits reach: numbers from `first` to `last`.
std::vector<Range> reach_of_hex(uint32_t first, uint32_t last, const Escapes& escapes) {
  std::vector<Range> ranges;
  if (escapes.all()) {
    ranges = characters(first, last);
  } else {
    for (uint32_t c = first; c <= std::min(last, 0x1FU); ++c) {
      if (may_be_hex(c, escapes)) {
        ranges.push_back({c, c});
      }
    }
    add_unspelled(ranges, escapes, first, last);
  }
  if (first <= 0xDBFF && last >= 0xD800) {
    const uint32_t low = above_bmp(std::max(first, 0xD800U));
    const uint32_t high = above_bmp(std::min(last, 0xDBFFU)) + 0x3FF;
    if (escapes.all()) {
      ranges.push_back({low, high});
    } else {
      add_unspelled(ranges, escapes, low, high);
    }
  }
  return ranges;
}

/// What the low half of a pair of surrogates reaches.
std::vector<Range> reach_of_low(uint32_t low, uint32_t high, const Escapes& escapes) {
  std::vector<Range> ranges;
  if (escapes.all()) {
    ranges.push_back({low, high});
  } else {
    add_unspelled(ranges, escapes, low, high);
  }
  return ranges;
}

}  // namespace

bool JsonStringDecoder::take(uint8_t byte, const Escapes& escapes, std::optional<char32_t>& point) {
  switch (phase) {
    case Phase::kNone:
      return take_lead(*this, byte, point);
    case Phase::kUtf8:
      return take_utf8(*this, byte, point);
    case Phase::kBackslash:
      return take_escape(*this, byte, escapes, point);
    case Phase::kHex:
    case Phase::kLowHex:
      return take_hex(*this, byte, escapes, point);
    case Phase::kLowSlash:
      phase = Phase::kLowLetter;
      return byte == '\\';
    case Phase::kLowLetter:
      *this = {Phase::kLowHex, 4, 0, value << 16};
      return byte == 'u';
  }
  return false;
}

std::vector<CodePoints::Range> JsonStringDecoder::reach(const Escapes& escapes) const {
  const auto shift = static_cast<unsigned>(more * 4);
  const uint32_t digits = value & 0xFFFF;
  const uint32_t first = digits << shift;
  const uint32_t last = ((digits + 1) << shift) - 1;
  switch (phase) {
    case Phase::kNone:
      return characters(0, CodePoints::kLast);
    case Phase::kBackslash: {
      if (escapes.all()) {
        return characters(0, CodePoints::kLast);
      }
      std::vector<Range> ranges = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
      add_unspelled(ranges, escapes, 0, CodePoints::kLast);
      return ranges;
    }
    case Phase::kUtf8: {
      const auto [low, high] = utf8_of(*this).reach();
      return characters(low, high);
    }
    case Phase::kHex:
      return reach_of_hex(first, last, escapes);
    case Phase::kLowSlash:
    case Phase::kLowLetter:
      return reach_of_low(above_bmp(value), above_bmp(value) + 0x3FF, escapes);
    case Phase::kLowHex: {
      const uint32_t least = std::max(first, 0xDC00U);
      const uint32_t most = std::min(last, 0xDFFFU);
      const uint32_t base = above_bmp(value >> 16);
      return least > most ? std::vector<Range>()
                          : reach_of_low(base + (least - 0xDC00), base + (most - 0xDC00), escapes);
    }
  }
  return {};
}

}  // namespace specdec
