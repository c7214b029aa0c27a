#include "grammar/cfg/lark_terminals.h"

#include "core/error.h"
#include "grammar/regex/regex_parser.h"

namespace specdec {
namespace {

constexpr std::string_view kLarkEscapes = "\"\\/'";

}  // namespace

ExpressionId LarkTerminals::literal() {
  const size_t start = text_.position();
  std::u32string points = text_.take_quoted(kLarkEscapes);
  if (text_.looking_at("..")) {
    return range(points, start);
  }
  if (text_.accept("i")) {
    return ignore_case(points, start);
  }
  return rules_.literal(std::move(points), span_from(start));
}

ExpressionId LarkTerminals::ignore_case(const std::u32string& points, size_t start) {
  std::string pattern = "(?i:";
  for (const char32_t c : points) {
    pattern += fmt::format("\\u{{{:x}}}", static_cast<uint32_t>(c));
  }
  return rules_.regex(parse_regex(regexes_, pattern + ")", false), points.size(), span_from(start));
}

ExpressionId LarkTerminals::range(const std::u32string& first, size_t start) {
  text_.skip(2);
  if (text_.peek() != '"') {
    text_.fail(fmt::format("expected the range's end in quotes, found {}", text_.here()));
  }
  const std::u32string last = text_.take_quoted(kLarkEscapes);
  if (first.size() != 1 || last.size() != 1 || last[0] < first[0]) {
    text_.fail(start, "a range needs one character at each end, the smaller one first");
  }
  return rules_.regex(regexes_.one_of(CodePoints({{first[0], last[0]}})), 1, span_from(start));
}

std::string LarkTerminals::pattern_body() {
  const size_t start = text_.position();
  text_.skip(1);
  std::string pattern;
  while (!text_.accept("/")) {
    if (text_.at_end() || text_.peek() == '\n') {
      text_.fail(start, "the regular expression is not closed; end it with '/'");
    }
    if (text_.peek() == '\\' && text_.peek(1) != '\0') {
      pattern += text_.peek();
      text_.skip(1);
    }
    pattern += text_.peek();
    text_.skip(1);
  }
  return pattern;
}

ExpressionId LarkTerminals::pattern() {
  const size_t start = text_.position();
  std::string pattern = pattern_body();
  const std::string_view flags = text_.take_word("");
  if (const size_t bad = flags.find_first_not_of("isu"); bad != std::string_view::npos) {
    text_.fail(start, fmt::format("the flag '{}' of a regular expression is not supported; i, s "
                                  "and u are",
                                  flags[bad]));
  }
  if (!flags.empty()) {
    pattern = fmt::format("(?{}:{})", flags, pattern);
  }
  try {
    return rules_.regex(parse_regex(regexes_, pattern, false), pattern.size(), span_from(start));
  } catch (const GrammarError& error) {
    text_.fail(start, error.what());
  }
}

}  // namespace specdec
