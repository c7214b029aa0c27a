#include "core/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/ascii.h"
#include "core/error.h"
#include "core/formats/utf8.h"
#include "core/jinja/text.h"

namespace specdec {
namespace {

using TokenKind = JinjaToken::Kind;

constexpr std::array<std::string_view, 6> kLongOperators = {"==", "!=", "<=", ">=", "//", "**"};
constexpr std::string_view kOperators = "+-/*%~[](){}<>=.:|,;";

/// Line ends as "\n", the last left out.
std::string normalized_source(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    const bool crlf = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!crlf) {
      text += source[i] == '\r' ? '\n' : source[i];
    }
  }
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

void append_utf8(uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += {static_cast<char>(0xC0U | code >> 6U), static_cast<char>(0x80U | (code & 0x3FU))};
  } else if (code < 0x10000) {
    out += {static_cast<char>(0xE0U | code >> 12U), static_cast<char>(0x80U | (code >> 6U & 0x3FU)),
            static_cast<char>(0x80U | (code & 0x3FU))};
  } else {
    out += {
        static_cast<char>(0xF0U | code >> 18U), static_cast<char>(0x80U | (code >> 12U & 0x3FU)),
        static_cast<char>(0x80U | (code >> 6U & 0x3FU)), static_cast<char>(0x80U | (code & 0x3FU))};
  }
}

bool is_name_byte(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class JinjaLexer {
 public:
  explicit JinjaLexer(std::string_view source) : source_(normalized_source(source)) {}

  std::vector<JinjaToken> tokens() {
    while (at_ < source_.size()) {
      text();
    }
    add(TokenKind::kEndOfTemplate, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("line {}: {}", line_, what));
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }

  void advance(size_t bytes) {
    const std::string_view passed = rest().substr(0, bytes);
    line_ += std::count(passed.begin(), passed.end(), '\n');
    at_ += passed.size();
    line_starts_ = passed.empty() ? line_starts_ : passed.back() == '\n';
  }

  void add(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_});
  }

  /// Text up to the next tag, and the tag.
  void text() {
    size_t tag = source_.find('{', at_);
    while (tag != std::string::npos &&
           (tag + 1 == source_.size() ||
            std::string_view("{%#").find(source_[tag + 1]) == std::string_view::npos)) {
      tag = source_.find('{', tag + 1);
    }
    const bool ends = tag == std::string::npos;
    const std::string_view before = rest().substr(0, ends ? rest().size() : tag - at_);
    const std::string_view kept = ends ? before : before.substr(0, kept_before(before, tag));
    if (!kept.empty()) {
      add(TokenKind::kText, std::string(kept));
    }
    advance(before.size());
    if (!ends) {
      const std::string_view begin = rest().substr(0, 2);
      const bool sign = rest().size() > 2 && (rest()[2] == '-' || rest()[2] == '+');
      advance(sign ? 3 : 2);
      begin == "{#" ? comment() : this->tag(std::string(begin));
    }
  }

  /// How much of the text before a tag stays: "{%-" takes all white space, "{%" and "{#" take what
  /// stands before them on their line if that is white space.
  size_t kept_before(std::string_view before, size_t tag) const {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (sign == '-') {
      return without_spaces_behind(before);
    }
    const size_t line = before.rfind('\n') + 1;  // 0 if there is none
    const std::string_view indent = before.substr(line);
    const bool blank = without_spaces_behind(indent) == 0;
    const bool strips = sign != '+' && source_[tag + 1] != '{' && (line > 0 || line_starts_);
    return strips && blank ? line : before.size();
  }

  void skip_spaces() {
    for (size_t bytes = python_space_at(rest()); bytes > 0; bytes = python_space_at(rest())) {
      advance(bytes);
    }
  }

  void comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) {
      fail("a comment has no end (#}).");
    }
    const char sign = end > at_ ? source_[end - 1] : ' ';
    advance(end + 2 - at_);
    behind_tag(sign, true);
  }

  void behind_tag(char sign, bool takes_line_end) {
    if (sign == '-') {
      skip_spaces();
    } else if (takes_line_end && sign != '+' && rest().starts_with('\n')) {
      advance(1);
    }
  }

  /// What stands between "{{" and "}}", or "{%" and "%}".
  void tag(const std::string& begin) {
    add(TokenKind::kBegin, begin);
    const std::string end = begin == "{{" ? "}}" : "%}";
    std::string open;  // brackets
    while (true) {
      skip_spaces();
      if (at_ == source_.size()) {
        fail(fmt::format("a tag has no end ({}).", end));
      }
      const bool signed_end = (rest()[0] == '-' || (rest()[0] == '+' && end == "%}")) &&
                              rest().substr(1).starts_with(end);
      if (open.empty() && (signed_end || rest().starts_with(end))) {
        const char sign = signed_end ? rest()[0] : ' ';
        add(TokenKind::kEnd, end);
        advance(signed_end ? 3 : 2);
        behind_tag(sign, end == "%}");
        return;
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = rest()[0];
    if (c == '\'' || c == '"') {
      string(c);
    } else if (is_digit(c)) {
      number();
    } else if (is_name_byte(c)) {
      const auto end = std::find_if_not(rest().begin(), rest().end(), is_name_byte);
      take(TokenKind::kName, static_cast<size_t>(end - rest().begin()));
    } else {
      const std::string_view two = rest().substr(0, 2);
      const bool is_long =
          std::find(kLongOperators.begin(), kLongOperators.end(), two) != kLongOperators.end();
      if (!is_long && kOperators.find(c) == std::string_view::npos) {
        fail(fmt::format("the character {} cannot stand there.",
                         rest().substr(0, scan_utf8(rest()).bytes)));
      }
      balance(c, open);
      take(TokenKind::kOperator, is_long ? 2 : 1);
    }
  }

  void balance(char c, std::string& open) const {
    constexpr std::string_view kOpening = "([{";
    constexpr std::string_view kClosing = ")]}";
    if (kOpening.find(c) != std::string_view::npos) {
      open += kClosing[kOpening.find(c)];
    } else if (kClosing.find(c) != std::string_view::npos) {
      if (open.empty() || open.back() != c) {
        fail(fmt::format("the bracket {} closes none.", c));
      }
      open.pop_back();
    }
  }

  void take(TokenKind kind, size_t bytes) {
    add(kind, std::string(rest().substr(0, bytes)));
    advance(bytes);
  }

  void number() {
    const auto end = std::find_if_not(rest().begin(), rest().end(), is_name_byte);
    const auto bytes = static_cast<size_t>(end - rest().begin());
    const std::string_view digits = rest().substr(0, bytes);
    const std::string_view behind = rest().substr(bytes);
    const bool follows_dot = at_ > 0 && source_[at_ - 1] == '.';
    const bool fraction = behind.size() > 1 && behind[0] == '.' && is_digit(behind[1]);
    const bool octal = digits[0] == '0' && digits.find_first_not_of('0') != digits.npos;
    if (!std::all_of(digits.begin(), digits.end(), is_digit<char>) || bytes > 15 || octal ||
        (fraction && !follows_dot)) {
      fail(fmt::format("the number that begins with {} is not supported.", shortened(digits)));
    }
    take(TokenKind::kInteger, bytes);
  }

  /// A literal between two `quote`s, as Python's "unicode-escape" reads it.
  void string(char quote) {
    const int64_t line = line_;
    std::string value;
    size_t i = 1;
    for (; i < rest().size() && rest()[i] != quote; ++i) {
      if (rest()[i] == '\\' && i + 1 < rest().size()) {
        i = escape(i + 1, value);
      } else {
        value += rest()[i];
      }
    }
    if (i >= rest().size()) {
      fail("a text has no end.");
    }
    advance(i + 1);
    tokens_.push_back({.kind = TokenKind::kString, .text = std::move(value), .line = line});
  }

  /// Appends what the escape whose letter stands at `i` means; returns the place of its last byte.
  size_t escape(size_t i, std::string& value) const {
    constexpr std::string_view kLetters = "ntr\\'\"abfv";
    constexpr std::string_view kMeant = "\n\t\r\\'\"\a\b\f\v";
    const char c = rest()[i];
    const size_t known = kLetters.find(c);
    if (known != std::string_view::npos) {
      value += kMeant[known];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      append_code(rest().substr(i + 1, digits), digits, 16, value);
      return i + digits;
    } else if (c >= '0' && c <= '7') {
      size_t digits = 1;
      while (digits < 3 && rest()[i + digits] >= '0' && rest()[i + digits] <= '7') {
        ++digits;
      }
      append_code(rest().substr(i, digits), digits, 8, value);
      return i + digits - 1;
    } else if (c == 'N') {
      fail("the escape \\N is not supported.");
    } else if (c != '\n') {  // an escaped line end is left out, other backslashes stay
      value += '\\';
      value += c;
    }
    return i;
  }

  void append_code(std::string_view digits, size_t count, int base, std::string& value) const {
    const bool whole =
        digits.size() == count && std::all_of(digits.begin(), digits.end(), [](char c) {
          return std::isxdigit(static_cast<unsigned char>(c)) != 0;
        });
    const uint64_t code = whole ? std::stoull(std::string(digits), nullptr, base) : UINT32_MAX;
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      fail(fmt::format("the escape of {} is no character.", digits));
    }
    append_utf8(static_cast<uint32_t>(code), value);
  }

  std::string source_;
  size_t at_ = 0;
  int64_t line_ = 1;
  bool line_starts_ = true;
  std::vector<JinjaToken> tokens_;
};

}  // namespace

std::vector<JinjaToken> jinja_tokens(std::string_view source) {
  return JinjaLexer(source).tokens();
}

}  // namespace specdec
