// What other syntaxes have and RegexSyntaxParser refuses, and what to write instead.
#include <algorithm>

#include "core/ascii.h"
#include "core/error.h"
#include "grammar/regex/regex_syntax.h"

namespace specdec {
namespace {

/// How groups begin that are no regular languages, or whose rules of matching decide.
struct RefusedGroup {
  std::u32string_view begin;
  const char* message;
};
constexpr RefusedGroup kRefusedGroups[] = {
    {U"?>", "atomic groups '(?>' are not supported; use '(?:'"},
    {U"?P=", "back-references '(?P=' are not supported: such languages are not regular"},
    {U"?P>", "recursion '(?P>' is not supported: such languages are not regular"},
    {U"?&", "recursion '(?&' is not supported: such languages are not regular"},
    {U"?R", "recursion '(?R' is not supported: such languages are not regular"},
    {U"?(", "conditional groups '(?(' are not supported; write both cases as alternatives"},
    {U"?|", "branch resets '(?|' are not supported; use '(?:'"},
    {U"?'", "groups named \"(?'\" are not supported; write '(?<name>...)'"},
    {U"?#", "comments '(?#' are not part of this syntax; leave it out"},
    {U"*", "control verbs '(*' are not supported; write '\\(' for the character"},
};

/// What to write for escapes of other syntaxes.
struct UnknownEscape {
  char32_t letter;
  const char* instead;
};
constexpr UnknownEscape kUnknownEscapes[] = {
    {'a', "'\\x07' for the bell"},
    {'e', "'\\x1B' for the escape character"},
    {'h', "'[ \\t]' for blanks"},
    {'H', "'[^ \\t]' for what is no blank"},
    {'R', "'(?:\\r\\n|[\\n-\\r\\x85\\u2028\\u2029])' for line ends"},
    {'N', "'[^\\n]', or '\\u' and four digits for a named character"},
    {'X', "'.' for a character"},
    {'G', "'^' for the beginning of the text"},
    {'K', "the pattern without it: a match is the whole text"},
    {'Q', "the text with a backslash before each of ^$\\.*+?()[]{}|"},
    {'E', "the text with a backslash before each of ^$\\.*+?()[]{}|"},
    {'g', "the group again: languages with back-references are not regular"},
    {'k', "the group again: languages with back-references are not regular"},
    {'y', "'\\b' for a word boundary"},
    {'m', "'\\b(?=\\w)' for the beginning of a word"},
    {'M', "'\\b(?!\\w)' for the end of a word"},
    {'U', "'\\u{' and '}' around the digits"},
    {'c', "'\\x' and two digits for a control character"},
};

/// GNU's assertions, which ECMA-262 with the flag `u` does not have.
constexpr UnknownEscape kGnuEscapes[] = {
    {'<', "'\\b(?=\\w)' for the beginning of a word, or '<' for the character"},
    {'>', "'\\b(?!\\w)' for the end of a word, or '>' for the character"},
    {'`', "'^' for the beginning of the text, or '`' for the character"},
    {'\'', "'$' for the end of the text, or \"'\" for the character"},
};

bool is_octal_digit(char32_t c) { return '0' <= c && c <= '7'; }

}  // namespace

void RegexSyntaxParser::refuse_group(size_t start) {
  for (const RefusedGroup& refused : kRefusedGroups) {
    if (looking_at(refused.begin)) {
      syntax_.fail(start, refused.message);
    }
  }
  if (is_python() && looking_at(U"?<")) {
    syntax_.fail(start, "groups named '(?<' are not Python's; write '(?P<name>...)'");
  }
}

/// [:name:] within a class, as POSIX has it, [.x.] and [=x=].
void RegexSyntaxParser::refuse_named_class() const {
  const char32_t mark = peek(1);
  if (peek() != '[' || (mark != ':' && mark != '.' && mark != '=')) {
    return;
  }
  const size_t end = text_.find(U']', position_);
  if (end != text_.npos && end > position_ + 2 && text_[end - 1] == mark) {
    syntax_.fail(
        position_,
        fmt::format("POSIX classes '{}' are not supported; write \\p{{L}}, \\d, \\s or the "
                    "characters, or '\\[' for a bracket",
                    to_utf8(text_.substr(position_, end + 1 - position_))));
  }
}

void RegexSyntaxParser::refuse_escape(size_t start) const {
  const char32_t c = text_[start + 1];
  const auto octal = octal_escape(start);
  if (c == '0' || octal) {
    syntax_.fail(start, fmt::format("octal escapes such as '{}' are not supported; write {}",
                                    to_utf8(text_.substr(start, octal ? octal->length : 2)),
                                    octal ? octal->instead : "'\\x00' for the character 0"));
  }
  std::string instead =
      fmt::format("'{}' for the {}", static_cast<char>(c), is_digit(c) ? "digit" : "letter");
  for (const UnknownEscape& unknown : kUnknownEscapes) {
    instead = unknown.letter == c ? unknown.instead : instead;
  }
  syntax_.fail(start,
               fmt::format("'\\{}' has no meaning here; write {}", static_cast<char>(c), instead));
}

void RegexSyntaxParser::refuse_reference(size_t start) const {
  const auto octal = octal_escape(start);
  syntax_.fail(start, fmt::format("back-references '{}' are not supported: such languages are not "
                                  "regular{}",
                                  to_utf8(text_.substr(start, octal ? octal->length : 2)),
                                  octal ? "; write " + octal->instead : ""));
}

/// A backslash and two or three digits, which are a character in other syntaxes.
std::optional<RegexSyntaxParser::OctalEscape> RegexSyntaxParser::octal_escape(size_t start) const {
  uint32_t value = 0;
  size_t end = start + 1;
  for (; end < std::min(text_.size(), start + 4) && is_octal_digit(text_[end]); ++end) {
    value = value * 8 + (text_[end] - '0');
  }
  if (end < start + 3 || value > 0xFF) {
    return std::nullopt;
  }
  return OctalEscape{end - start, fmt::format("'\\x{:02X}' for that character", value)};
}

/// Refuses GNU's word edges at this backslash, in the strict dialect.
void RegexSyntaxParser::refuse_word_edge() const {
  for (const UnknownEscape& unknown : kGnuEscapes) {
    if (dialect_ == RegexDialect::kEcmaStrict && unknown.letter == peek(1)) {
      syntax_.fail(position_, fmt::format("'\\{}' has no meaning here; write {}",
                                          static_cast<char>(unknown.letter), unknown.instead));
    }
  }
}

/// {,n} at a brace, which Python and others read as a count.
void RegexSyntaxParser::refuse_open_count() const {
  size_t end = position_ + 2;
  while (end < text_.size() && is_digit(text_[end])) {
    ++end;
  }
  if (dialect_ == RegexDialect::kEcmaStrict && peek(1) == ',' && end < text_.size() &&
      text_[end] == '}') {
    const std::string most = to_utf8(text_.substr(position_ + 2, end - position_ - 2));
    syntax_.fail(position_, fmt::format("'{{,{0}}}' is no count here; write '{{0,{0}}}', or "
                                        "'\\{{' for the brace",
                                        most));
  }
}

}  // namespace specdec
