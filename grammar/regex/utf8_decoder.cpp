#include "grammar/regex/utf8_decoder.h"

#include <algorithm>
#include <array>

namespace specdec {
namespace {

constexpr CodePoints::Range kSurrogates = {0xD800, 0xDFFF};

/// All that the bytes to come can make of the bits so far.
CodePoints::Range block_of(const Utf8Decoder& decoder) {
  const uint32_t bits = decoder.more * 6;
  return {decoder.value << bits, ((decoder.value + 1) << bits) - 1};
}

}  // namespace

CodePoints::Range Utf8Decoder::reach() const {
  constexpr std::array<char32_t, 5> kFirst = {0, 0, 0x80, 0x800, 0x10000};
  const CodePoints::Range block = block_of(*this);
  return {std::max(block.first, kFirst[size]), std::min(block.last, CodePoints::kLast)};
}

bool Utf8Decoder::is_free() const {
  const CodePoints::Range block = block_of(*this);
  return reach() == block && (block.last < kSurrogates.first || block.first > kSurrogates.last);
}

bool Utf8Decoder::take(uint8_t byte, std::optional<char32_t>& point) {
  if (idle()) {
    if (byte < 0x80) {
      point = byte;
      return true;
    }
    if (byte < 0xC2 || byte > 0xF4) {
      return false;
    }
    more = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    size = more + 1;
    value = byte & (0x3FU >> more);
    return true;
  }
  if ((byte & 0xC0U) != 0x80U) {
    return false;
  }
  value = value << 6 | (byte & 0x3FU);
  --more;
  const auto [first, last] = reach();
  if (first > last || (first >= kSurrogates.first && last <= kSurrogates.last)) {
    return false;
  }
  if (more == 0) {
    point = value;
    *this = {};
  }
  return true;
}

Utf8Decoder Utf8Decoder::shape() const {
  if (idle() || !is_free()) {
    return *this;
  }
  return {more == 1 ? 2U : 1U, more, more + 1};  // as after C2, E1 and F1
}

}  // namespace specdec
