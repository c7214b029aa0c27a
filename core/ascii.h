#pragma once

namespace specdec {

/// The digits and letters of ASCII, whatever the locale is. `Char` is a byte or a code point.

template <class Char>
constexpr bool is_digit(Char c) {
  return '0' <= c && c <= '9';
}

template <class Char>
constexpr bool is_letter(Char c) {
  return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z');
}

}  // namespace specdec
