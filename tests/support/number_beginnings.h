#pragma once
#include <random>
#include <string>
#include <string_view>

namespace specdec {

inline bool in(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

/// True for the beginning of a JSON number, the empty one too.
inline bool begins_number(std::string_view text) {
  if (text.starts_with('-')) {
    text.remove_prefix(1);
  }
  if (text.size() > 1 && text[0] == '0' && in(text[1], "0123456789")) {
    return false;
  }
  char before = '-';
  bool point = false;
  bool letter = false;
  for (const char c : text) {
    const bool digit = in(before, "0123456789");
    if ((c == '.' && (!digit || point || letter)) || (in(c, "eE") && (!digit || letter)) ||
        (in(c, "+-") && !in(before, "eE"))) {
      return false;
    }
    point = point || c == '.';
    letter = letter || in(c, "eE");
    before = c;
  }
  return true;
}

/// Random bytes that keep a text the beginning of a number.
inline std::string random_text(std::string text, size_t bytes, std::string_view alphabet,
                               std::mt19937& random) {
  for (size_t i = 0; i < bytes; ++i) {
    const char c = alphabet[random() % alphabet.size()];
    text = begins_number(text + c) ? text + c : text;
  }
  return text;
}

}  // namespace specdec
