#include "core/jinja/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "core/ascii.h"
#include "core/error.h"
#include "core/jinja/text.h"

namespace specdec {
namespace {

/// Takes the digits that a text begins with, which single underscores may part; false for none.
bool take_digits(std::string_view& rest, std::string& digits) {
  const size_t before = digits.size();
  while (!rest.empty()) {
    const bool parted =
        rest.size() > 1 && rest[0] == '_' && is_digit(rest[1]) && digits.size() > before;
    if (!is_digit(rest[0]) && !parted) {
      break;
    }
    digits += parted ? rest[1] : rest[0];
    rest.remove_prefix(parted ? 2 : 1);
  }
  return digits.size() > before;
}

bool take_sign(std::string_view& rest, std::string& number) {
  const bool found = !rest.empty() && (rest[0] == '+' || rest[0] == '-');
  if (found) {
    number += rest[0] == '-' ? "-" : "";
    rest.remove_prefix(1);
  }
  return found;
}

/// A number as Python writes it, without what from_chars does not read; "" for what is none.
std::string plain_number(std::string_view rest, bool& whole) {
  std::string number;
  take_sign(rest, number);
  bool digits = take_digits(rest, number);
  whole = digits && rest.empty();
  if (!rest.empty() && rest[0] == '.') {
    rest.remove_prefix(1);
    number += digits ? "." : "0.";
    digits = take_digits(rest, number) || digits;
  }
  if (digits && !rest.empty() && (rest[0] == 'e' || rest[0] == 'E')) {
    rest.remove_prefix(1);
    number += 'e';
    take_sign(rest, number);
    digits = take_digits(rest, number);
  }
  return digits && rest.empty() ? number : "";
}

}  // namespace

std::optional<int64_t> parsed_int(std::string_view text) {
  if (std::any_of(text.begin(), text.end(), [](char c) { return (c & '\x80') != 0; })) {
    throw Error("the filter int of a text with characters outside ASCII is not supported.");
  }
  bool whole = false;
  const std::string number = plain_number(text, whole);
  if (number.empty()) {
    return std::nullopt;
  }
  const char* end = number.data() + number.size();
  int64_t result = 0;
  if (whole && std::from_chars(number.data(), end, result).ec == std::errc()) {
    return result;
  }
  double value = 0;
  const bool read = !whole && std::from_chars(number.data(), end, value).ec == std::errc();
  constexpr double kLimit = 9.2e18;
  if (!read || std::abs(value) > kLimit) {
    throw Error(
        fmt::format("the filter int of {}, which is too large or too small a number, is "
                    "not supported.",
                    shortened(text)));
  }
  return static_cast<int64_t>(value);
}

std::string printed_float(double number) {
  std::string text = fmt::format("{}", number);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace specdec
