#include "grammar/cfg/lark_terminals.h"

#include "core/error.h"

namespace specdec {
namespace {

constexpr std::string_view kLarkEscapes = "\"\\f ";

}  // namespace

ExpressionId LarkTerminals::literal() {
  const size_t start = text_.position();
  std::u32string points = text_.take_quoted(kLarkEscapes);
  const size_t end = text_.position();
  skip_blanks();
  if (text_.looking_at("..")) {
    return range(points, start);
  }
  text_.seek(end);
  if (text_.accept("i")) {
    return ignore_case(points, start);
  }
  return rules_.literal(std::move(points), span_from(start));
}

void LarkTerminals::skip_blanks() {
  while (text_.accept(" ") || text_.accept("\t")) {
  }
}

ExpressionId LarkTerminals::ignore_case(const std::u32string& points, size_t start) {
  std::string pattern = "(?i:";
  for (const char32_t c : points) {
    pattern += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
  }
  return patterns_.part(pattern + ")", span_from(start));
}

ExpressionId LarkTerminals::range(const std::u32string& first, size_t start) {
  text_.skip(2);
  skip_blanks();
  if (text_.peek() != '"') {
    text_.fail(fmt::format("expected the range's end in quotes, found {}", text_.here()));
  }
  const std::u32string last = text_.take_quoted(kLarkEscapes);
  if (first.size() != 1 || last.size() != 1 || last[0] < first[0]) {
    text_.fail(start, "a range needs one character at each end, the smaller one first");
  }
  return patterns_.part(fmt::format("[\\U{:08x}-\\U{:08x}]", static_cast<uint32_t>(first[0]),
                                    static_cast<uint32_t>(last[0])),
                        span_from(start));
}

std::string LarkTerminals::pattern_body() {
  const size_t start = text_.position();
  text_.skip(1);
  std::string pattern;
  while (!text_.accept("/")) {
    if (text_.at_end()) {
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

ExpressionId LarkTerminals::pattern(bool is_part) {
  const size_t start = text_.position();
  std::string pattern = pattern_body();
  const std::string_view flags = text_.take_word("");
  if (pattern.find('\n') != std::string::npos && flags.find('x') == std::string_view::npos) {
    text_.fail(start,
               "the regular expression is not closed on its line; end it with '/', write "
               "line ends as \\n, or add the flag x");
  }
  if (const size_t bad = flags.find_first_not_of("imsux"); bad != std::string_view::npos) {
    text_.fail(start, fmt::format("the flag '{}' of a regular expression is not supported; i, m, "
                                  "s, u and x are",
                                  flags[bad]));
  }
  if (!flags.empty()) {
    pattern = scope_flags(fmt::format("(?{}){}", flags, pattern));
  }
  return is_part ? patterns_.part(std::move(pattern), span_from(start))
                 : patterns_.whole(pattern, span_from(start));
}

}  // namespace specdec
