// The classes and escapes that RegexSyntaxParser reads.
#include <algorithm>

#include "core/ascii.h"
#include "core/error.h"
#include "grammar/regex/regex_syntax.h"
#include "grammar/regex/regex_unicode.h"

namespace specdec {
namespace {

/// White space with the ranges in which the syntaxes differ.
CodePoints spaces_and(const std::vector<CodePoints::Range>& more) {
  return CodePoints({{'\t', '\r'},
                     {' ', ' '},
                     {0xA0, 0xA0},
                     {0x1680, 0x1680},
                     {0x2000, 0x200A},
                     {0x2028, 0x2029},
                     {0x202F, 0x202F},
                     {0x205F, 0x205F},
                     {0x3000, 0x3000}})
      .unite(CodePoints(more));
}

/// ECMA-262's WhiteSpace and LineTerminator.
const CodePoints& ecma_spaces() {
  static const CodePoints kSpaces = spaces_and({{0xFEFF, 0xFEFF}});
  return kSpaces;
}

/// What str.isspace() takes.
const CodePoints& python_spaces() {
  static const CodePoints kSpaces = spaces_and({{0x1C, 0x1F}, {0x85, 0x85}});
  return kSpaces;
}

CodePoints ascii_words() { return CodePoints({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}}); }

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
  if (!flags_.ignore_case) {
    return points;
  }
  if (flags_.ascii) {
    return close_over_ascii_case(points);
  }
  return is_python() ? close_over_python_case(points) : close_over_case(points);
}

CodePoints RegexSyntaxParser::digits() const {
  const bool ascii = !is_python() || flags_.ascii;
  return ascii ? CodePoints({{'0', '9'}}) : *unicode_property("Nd");
}

CodePoints RegexSyntaxParser::spaces() const {
  const CodePoints ascii({{'\t', '\r'}, {' ', ' '}});
  return flags_.ascii ? ascii : is_python() ? python_spaces() : ecma_spaces();
}

CodePoints RegexSyntaxParser::words() const {
  if (!is_python()) {
    return fold(ascii_words());
  }
  return flags_.ascii ? ascii_words()
                      : unicode_property("L")->unite(*unicode_property("N")).unite(ascii_words());
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
  const char32_t text_end = is_python() ? U'Z' : U'z';
  if (c == U'A' || c == text_end) {
    position_ += 2;
    return add({.kind = c == U'A' ? Kind::kStart : Kind::kEnd, .position = start});
  }
  if (refers_back()) {
    refuse_reference(start);
  }
  if (c == 'Z' || c == 'z') {
    syntax_.fail(start, fmt::format("'\\{}' is not supported; use '{}' for the end of the text",
                                    static_cast<char>(c), is_python() ? "\\Z" : "$"));
  }
  if (auto points = class_escape()) {
    return add_points(*points, start);
  }
  refuse_word_edge();
  const char32_t character = character_escape();
  return add_points(fold(CodePoints({{character, character}})), start);
}

/// Whether a reference back stands at this backslash. In Python three octal digits are a character.
bool RegexSyntaxParser::refers_back() const {
  const auto is_octal = [](char32_t c) { return '0' <= c && c <= '7'; };
  const char32_t c = peek(1);
  if (is_python() && is_octal(c) && is_octal(peek(2)) && is_octal(peek(3))) {
    return false;
  }
  return ('1' <= c && c <= '9') || (c == 'k' && !is_python());
}

CodePoints RegexSyntaxParser::bracket_class() {
  const size_t start = position_++;
  const bool negative = accept(U"^");
  const size_t first_member = position_;
  std::vector<CodePoints::Range> ranges;
  while (!at_end() && (peek() != ']' || (is_python() && position_ == first_member))) {
    refuse_named_class();
    const size_t member = position_;
    std::optional<char32_t> first;
    std::optional<char32_t> last;
    CodePoints points = class_member(first);
    const bool is_range = peek() == '-' && position_ + 1 < text_.size() && peek(1) != ']';
    if (is_range && (first || is_python())) {
      const size_t dash = position_++;
      CodePoints after = class_member(last);
      if (is_python() && !(first && last)) {
        syntax_.fail(member, "a range ends at characters, not at classes; write '\\-' for a dash");
      } else if (!last) {  // as in [a-\d]: the dash stands for itself (annex B)
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
  if (is_python()) {
    if (const auto known = python_escape(start)) {
      return *known;
    }
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
  if (c == 'c' && is_letter(peek()) && !is_python()) {
    return text_[position_++] & 0x1F;
  }
  if (is_letter(c) || is_digit(c)) {
    refuse_escape(start);
  }
  return c;
}

/// What Python has instead of the escapes here or besides them.
std::optional<char32_t> RegexSyntaxParser::python_escape(size_t start) {
  const char32_t c = peek();
  if ('0' <= c && c <= '7') {
    return octal_digits(3, start);
  }
  if (c == 'N') {
    syntax_.fail(start, "named characters '\\N{' are not supported; write '\\u' and four digits");
  }
  if (c != 'a' && c != 'u' && c != 'U') {
    return std::nullopt;
  }
  ++position_;
  if (c == 'a') {
    return '\a';
  }
  const char32_t value = hex_digits(c == 'u' ? 4 : 8, start);
  if (value > CodePoints::kLast) {
    syntax_.fail(start, "there is no such character; the last one is '\\U0010FFFF'");
  }
  return value;
}

char32_t RegexSyntaxParser::octal_digits(size_t most, size_t start) {
  char32_t value = 0;
  for (size_t i = 0; i < most && '0' <= peek() && peek() <= '7'; ++i, ++position_) {
    value = value * 8 + (peek() - '0');
  }
  if (value > 0xFF) {
    syntax_.fail(start, "octal escapes end at '\\377'; write '\\u' and four digits");
  }
  return value;
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
