#include "grammar/cfg/grammar_text.h"

#include <algorithm>

#include "core/ascii.h"
#include "core/error.h"
#include "core/formats/utf8.h"
#include "grammar/regex/regex.h"

namespace specdec {
namespace {

constexpr size_t kExcerpt = 60;
constexpr int kMaxNesting = 1000;  // whatever the limits say: reading a group takes some stack

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

GrammarText::GrammarText(std::string_view text, std::string_view where, const GrammarLimits& limits)
    : text_(text), where_(where), max_nesting_(std::min(limits.max_nesting, kMaxNesting)) {
  if (text.size() > limits.max_bytes) {
    throw GrammarError(fmt::format("{}: the grammar has {} bytes, more than max_bytes = {} allows",
                                   where, text.size(), limits.max_bytes));
  }
  for (size_t i = 0; i < text.size();) {
    const Utf8Scan scan = scan_utf8(text.substr(i));
    if (!scan.valid) {
      fail(i, "the grammar is not UTF-8 here; save the file as UTF-8");
    }
    i += scan.bytes;
  }
}

char GrammarText::peek(size_t ahead) const {
  return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0';
}

bool GrammarText::looking_at(std::string_view prefix) const {
  return text_.substr(position_).starts_with(prefix);
}

bool GrammarText::accept(std::string_view prefix) {
  const bool found = looking_at(prefix);
  position_ += found ? prefix.size() : 0;
  return found;
}

void GrammarText::skip(size_t bytes) { position_ = std::min(position_ + bytes, text_.size()); }

void GrammarText::skip_line() { position_ = std::min(text_.find('\n', position_), text_.size()); }

char32_t GrammarText::take_point() {
  const size_t bytes = scan_utf8(text_.substr(position_)).bytes;
  const std::u32string point = to_code_points(text_.substr(position_, bytes));
  position_ += bytes;
  return point[0];
}

std::string_view GrammarText::take_word(std::string_view others) {
  const size_t start = position_;
  while (!at_end() &&
         (is_letter(peek()) || is_digit(peek()) || others.find(peek()) != std::string_view::npos)) {
    ++position_;
  }
  return text_.substr(start, position_ - start);
}

uint64_t GrammarText::take_number() {
  const size_t start = position_;
  uint64_t value = 0;
  for (; is_digit(peek()); ++position_) {
    value = value * 10 + static_cast<uint64_t>(peek() - '0');
    if (value >> 32 != 0) {
      fail(start, "the number is too large; numbers below 4294967296 are allowed");
    }
  }
  if (position_ == start) {
    fail(fmt::format("expected a number, found {}", here()));
  }
  return value;
}

char32_t GrammarText::take_escape(std::string_view plain) {
  const size_t start = position_;
  ++position_;
  const char letter = peek();
  position_ += at_end() ? 0 : 1;
  switch (letter) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'x':
      return take_hex(2, start);
    case 'u':
      return take_hex(4, start);
    case 'U':
      return take_hex(8, start);
    default:
      break;
  }
  if (letter == '\0' || plain.find(letter) == std::string_view::npos) {
    std::string known = "\\n \\t \\r \\xHH \\uXXXX \\UXXXXXXXX";
    for (const char c : plain) {
      known += std::string(" \\") + c;
    }
    fail(start, fmt::format("unknown escape '{}'; known: {}",
                            excerpt(start, std::max(position_, start + 1)), known));
  }
  return letter == 'f' ? U'\f' : static_cast<char32_t>(letter);
}

char32_t GrammarText::take_hex(size_t digits, size_t start) {
  uint64_t value = 0;
  for (size_t i = 0; i < digits; ++i, ++position_) {
    const char c = peek();
    const char lower = static_cast<char>(c | 0x20);
    if (!is_digit(c) && (lower < 'a' || lower > 'f')) {
      fail(start, fmt::format("the escape needs {} hexadecimal digits", digits));
    }
    value = value * 16 + static_cast<uint64_t>(is_digit(c) ? c - '0' : lower - 'a' + 10);
  }
  if (value > CodePoints::kLast || (value >= 0xD800 && value <= 0xDFFF)) {
    fail(start,
         "the escape names no character; write characters above U+FFFF as \\UXXXXXXXX with their "
         "own number");
  }
  return static_cast<char32_t>(value);
}

std::u32string GrammarText::take_quoted(std::string_view plain) {
  const size_t start = position_;
  skip(1);
  std::u32string points;
  while (!accept("\"")) {
    if (at_end() || peek() == '\n') {
      fail(start, "the literal is not closed; end it with '\"', and write a line break as \\n");
    }
    points += peek() == '\\' ? take_escape(plain) : take_point();
  }
  return points;
}

void GrammarText::open_group() {
  if (++depth_ > max_nesting_) {
    fail(
        fmt::format("groups are nested more than max_nesting = {} deep; move inner ones into rules "
                    "of their own",
                    max_nesting_));
  }
  skip(1);
}

void GrammarText::close_group(size_t start, std::string_view close) {
  if (!accept(close)) {
    fail(start, fmt::format("the group is not closed: expected '{}', found {}", close, here()));
  }
  --depth_;
}

std::string GrammarText::excerpt(size_t begin, size_t end) const {
  std::string result;
  size_t i = begin;
  for (; i < std::min(end, text_.size()) && result.size() < kExcerpt;) {
    const size_t bytes = scan_utf8(text_.substr(i)).bytes;
    if (is_space(text_[i])) {
      result += !result.empty() && result.back() != ' ' ? " " : "";
    } else {
      result += text_.substr(i, bytes);
    }
    i += bytes;
  }
  while (!result.empty() && result.back() == ' ') {
    result.pop_back();
  }
  return result + (i < std::min(end, text_.size()) ? "..." : "");
}

std::string GrammarText::here() const {
  if (at_end()) {
    return "the end of the grammar";
  }
  if (peek() == '\n' || peek() == '\r') {
    return "the end of the line";
  }
  return fmt::format("'{}'", text_.substr(position_, scan_utf8(text_.substr(position_)).bytes));
}

void GrammarText::fail(size_t position, const std::string& message) const {
  const std::string_view before = text_.substr(0, std::min(position, text_.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const auto column = 1 + std::count_if(before.begin() + static_cast<int64_t>(line_start),
                                        before.end(), [](char c) { return (c & 0xC0) != 0x80; });
  throw GrammarError(fmt::format("{}:{}:{}: {}", where_, line, column, message));
}

}  // namespace specdec
