#pragma once
#include <cstdint>
#include <optional>

#include "grammar/regex/code_points.h"

namespace specdec {

/// Between two bytes of a UTF-8 text: nothing, or a character that has begun (Unicode 15, table
/// 3-7).
struct Utf8Decoder {
  uint32_t value = 0;  ///< the bits so far
  uint32_t more = 0;   ///< bytes to come
  uint32_t size = 0;   ///< bytes in all; 0: nothing has begun
  bool operator==(const Utf8Decoder&) const = default;

  bool idle() const { return size == 0; }
  /// False when no character goes on so; `point` is the character that the byte completes, if it
  /// does.
  bool take(uint8_t byte, std::optional<char32_t>& point);
  /// The code points that the character may become, surrogates too; nothing (first > last) when
  /// whatever comes makes it overlong or larger than all code points. Not idle.
  CodePoints::Range reach() const;
  /// True when every continuation byte may come, each time.
  bool is_free() const;
  /// A decoder that takes the same bytes: one of eight, for those who do not ask for characters.
  Utf8Decoder shape() const;
};

}  // namespace specdec
