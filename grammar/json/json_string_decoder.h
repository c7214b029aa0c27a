#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "grammar/regex/code_points.h"

namespace specdec {

/// Which escapes a JSON string may hold.
enum class EscapeStyle {
  kAny,      ///< every one that JSON has
  kMinimal,  ///< only what must be escaped, in its shortest form
};

/// The escapes of a style, where some characters cannot be spelled by their own bytes.
struct Escapes {
  EscapeStyle style = EscapeStyle::kAny;
  /// Characters that \u may stand for with kMinimal, although JSON requires no escape of them.
  /// Borrowed; nullptr = none.
  const CodePoints* unspelled = nullptr;

  bool all() const { return style == EscapeStyle::kAny; }
  bool operator==(const Escapes&) const = default;
};

/// Between two bytes of a JSON string's body: nothing, or a part of a UTF-8 character or escape.
struct JsonStringDecoder {
  enum class Phase : uint8_t {
    kNone,
    kUtf8,       ///< value: the bits so far, more: bytes to come, size: bytes in all
    kBackslash,  ///< after a backslash
    kHex,        ///< value: digits of \u so far, more: digits to come
    kLowSlash,   ///< value: a high surrogate; a backslash must follow
    kLowLetter,  ///< then u
    kLowHex,     ///< value: high surrogate << 16 | digits so far, more: digits to come
  };
  Phase phase = Phase::kNone;
  uint8_t more = 0;
  uint8_t size = 0;
  uint32_t value = 0;
  bool operator==(const JsonStringDecoder&) const = default;

  bool idle() const { return phase == Phase::kNone; }
  /// One word, different for different decoders.
  uint64_t key() const {
    return static_cast<uint64_t>(value) << 24 | static_cast<uint64_t>(size) << 16 |
           static_cast<uint64_t>(more) << 8 | static_cast<uint64_t>(phase);
  }

  /// Takes a byte of the body (not the closing quote). False when no string goes on so; `point` is
  /// the character that it completes, if it does.
  bool take(uint8_t byte, const Escapes& escapes, std::optional<char32_t>& point);
  /// The characters that the unfinished part may become; everything when idle.
  std::vector<CodePoints::Range> reach(const Escapes& escapes) const;
};

}  // namespace specdec
