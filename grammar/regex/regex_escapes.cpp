// The classes and escapes that RegexSyntaxParser reads.
#include <algorithm>

#include "core/error.h"
#include "grammar/regex/regex_syntax.h"
#include "grammar/regex/regex_unicode.h"

namespace specdec {
namespace {

const CodePoints& digits() {
  static const CodePoints kDigits({{'0', '9'}});
  return kDigits;
}

const CodePoints& spaces() {
  static const CodePoints kSpaces({{'\t', '\r'},
                                   {' ', ' '},
                                   {0xA0, 0xA0},
                                   {0x1680, 0x1680},
                                   {0x2000, 0x200A},
                                   {0x2028, 0x2029},
                                   {0x202F, 0x202F},
                                   {0x205F, 0x205F},
                                   {0x3000, 0x3000},
                                   {0xFEFF, 0xFEFF}});
  return kSpaces;
}

bool is_letter(char32_t c) { return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z'); }

bool is_digit(char32_t c) { return '0' <= c && c <= '9'; }

std::optional<char32_t> hex_value(char32_t c) {
  if (is_digit(c)) {
    return c - '0';
  }
  const char32_t lower = c | 0x20;
  if ('a' <= lower && lower <= 'f' && is_letter(c)) {
    return lower - 'a' + 10;
  }
  return std::nullopt;
}

}  // namespace

CodePoints RegexSyntaxParser::fold(const CodePoints& points) const {
  return flags_.ignore_case ? close_over_case(points) : points;
}

CodePoints RegexSyntaxParser::words() const {
  return fold(CodePoints({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}}));
}

uint32_t RegexSyntaxParser::escape_term() {
  const size_t start = position_;
  const char32_t c = peek(1);
  if (c == 'b' || c == 'B') {
    position_ += 2;
    return add({.kind = Kind::kBoundary,
                .negative = c == 'B',
                .points = class_index(words()),
                .position = start});
  }
  if (c == 'A' || c == 'z') {
    position_ += 2;
    return add({.kind = c == 'A' ? Kind::kStart : Kind::kEnd, .position = start});
  }
  if (('1' <= c && c <= '9') || c == 'k') {
    syntax_.fail(start, "back-references are not supported: such languages are not regular");
  }
  if (c == 'Z') {
    syntax_.fail(start, "'\\Z' is not supported; use '$' for the end of the text");
  }
  if (auto points = class_escape()) {
    return add_points(*points, start);
  }
  const char32_t character = character_escape();
  return add_points(fold(CodePoints({{character, character}})), start);
}

CodePoints RegexSyntaxParser::bracket_class() {
  const size_t start = position_++;
  const bool negative = accept(U"^");
  std::vector<CodePoints::Range> ranges;
  while (!at_end() && peek() != ']') {
    const size_t member = position_;
    std::optional<char32_t> first;
    std::optional<char32_t> last;
    CodePoints points = class_member(first);
    if (peek() == '-' && position_ + 1 < text_.size() && peek(1) != ']' && first) {
      const size_t dash = position_++;
      CodePoints after = class_member(last);
      if (!last) {  // as in [a-\d]: the dash stands for itself (annex B)
        points = points.unite(after).unite(CodePoints({{'-', '-'}}));
      } else if (*last < *first) {
        syntax_.fail(member, "the range is out of order; write the lower character first");
      } else {
        points = CodePoints({{*first, *last}});
      }
      SPECDEC_CHECK(position_ > dash, "no progress");
    }
    ranges.insert(ranges.end(), points.ranges().begin(), points.ranges().end());
  }
  if (!accept(U"]")) {
    syntax_.fail(start, "the class is not closed; add ']', or write '\\[' for the character");
  }
  const CodePoints all = fold(CodePoints(ranges));
  return negative ? all.complement() : all;
}

/// A character, which `single` gets then, or a set of them.
CodePoints RegexSyntaxParser::class_member(std::optional<char32_t>& single) {
  if (peek() != '\\') {
    single = peek();
    ++position_;
  } else if (peek(1) == 'b') {
    position_ += 2;
    single = '\b';
  } else if (auto points = class_escape()) {
    return *points;
  } else {
    single = character_escape();
  }
  return CodePoints({{*single, *single}});
}

/// \d \D \s \S \w \W \p{...} \P{...}, or nothing.
std::optional<CodePoints> RegexSyntaxParser::class_escape() {
  const char32_t c = peek(1);
  const bool negative = 'A' <= c && c <= 'Z';
  switch (c | 0x20) {
    case 'd':
      position_ += 2;
      return negative ? digits().complement() : digits();
    case 's':
      position_ += 2;
      return negative ? spaces().complement() : spaces();
    case 'w':
      position_ += 2;
      return negative ? words().complement() : words();
    case 'p':
      return is_letter(c) ? std::optional(property_escape(negative)) : std::nullopt;
    default:
      return std::nullopt;
  }
}

CodePoints RegexSyntaxParser::property_escape(bool negative) {
  const size_t start = position_;
  position_ += 2;
  std::u32string_view name = text_.substr(std::min(position_, text_.size()), 1);
  if (accept(U"{")) {
    const size_t end = text_.find(U'}', position_);
    if (end == text_.npos) {
      syntax_.fail(start, "the property's name is not closed; add '}'");
    }
    name = text_.substr(position_, end - position_);
    position_ = end;
  }
  const auto points = unicode_property(to_utf8(name));
  if (!points) {
    syntax_.fail(start, fmt::format("there is no Unicode property '{}'; known are general "
                                    "categories, Script=, Script_Extensions= and binary properties",
                                    to_utf8(name)));
  }
  ++position_;
  const CodePoints folded = fold(*points);
  return negative ? folded.complement() : folded;
}

char32_t RegexSyntaxParser::character_escape() {
  const size_t start = position_++;
  if (at_end()) {
    syntax_.fail(start, "nothing follows the backslash; write '\\\\' for the character");
  }
  const char32_t c = text_[position_++];
  static constexpr std::u32string_view kControls = U"t\tn\nv\vf\fr\r";
  for (size_t i = 0; i < kControls.size(); i += 2) {
    if (kControls[i] == c) {
      return kControls[i + 1];
    }
  }
  if (c == '0' && !is_digit(peek())) {
    return 0;
  }
  if (c == 'x') {
    return hex_digits(2, start);
  }
  if (c == 'u') {
    return unicode_escape(start);
  }
  if (c == 'c' && is_letter(peek())) {
    return text_[position_++] & 0x1F;
  }
  if (is_letter(c) || is_digit(c)) {
    syntax_.fail(start, fmt::format("'\\{}' has no meaning here; leave out the backslash",
                                    static_cast<char>(c)));
  }
  return c;
}

/// After `\u`: four digits, two such escapes that are a surrogate pair, or digits in braces.
char32_t RegexSyntaxParser::unicode_escape(size_t start) {
  if (accept(U"{")) {
    char32_t value = 0;
    const size_t first = position_;
    for (auto digit = hex_value(peek()); digit; digit = hex_value(peek())) {
      value = std::min<char32_t>(value * 16 + *digit, CodePoints::kLast + 1);
      ++position_;
    }
    if (position_ == first || value > CodePoints::kLast || !accept(U"}")) {
      syntax_.fail(start, "write '\\u{...}' with hexadecimal digits up to 10FFFF");
    }
    return value;
  }
  const char32_t high = hex_digits(4, start);
  const size_t after = position_;
  if (0xD800 <= high && high <= 0xDBFF && accept(U"\\u") && hex_value(peek())) {
    const char32_t low = hex_digits(4, after);
    if (0xDC00 <= low && low <= 0xDFFF) {
      return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  position_ = after;
  return high;
}

char32_t RegexSyntaxParser::hex_digits(size_t count, size_t start) {
  char32_t value = 0;
  for (size_t i = 0; i < count; ++i, ++position_) {
    const auto digit = hex_value(peek());
    if (!digit) {
      syntax_.fail(start, fmt::format("{} hexadecimal digits must follow", count));
    }
    value = value * 16 + *digit;
  }
  return value;
}

}  // namespace specdec
