#include "grammar/cfg/rule_parts.h"

#include <fmt/format.h>

#include "core/error.h"

namespace specdec {
namespace {

constexpr uint64_t kMaxListedTokens = 1000;

RuleSet::NamedToken require_token(const std::string& name, size_t place, const GrammarText& text,
                                  const RuleParts& parts) {
  try {
    if (!parts.require_token) {
      throw GrammarError(fmt::format("there are no tokens here, such as {}", name));
    }
    const Token token = parts.require_token(name);
    return {token, name, parts.is_end && parts.is_end(token)};
  } catch (const GrammarError& error) {
    text.fail(place, error.what());
  }
}

/// 4-7,9 up to a bracket, and the brackets.
ExpressionId read_ids(RuleSet& rules, GrammarText& text, const RuleParts& parts) {
  const size_t start = text.position();
  text.skip(2);
  if (text.peek() == '^' || text.peek() == '*') {
    text.fail(start,
              "'any token' and 'any token but these' are not supported; write the text as an "
              "expression, and name the tokens that may come as <[4-7,9]>");
  }
  std::vector<ExpressionId> tokens;
  do {
    const uint64_t first = text.take_number();
    const uint64_t last = text.accept("-") ? text.take_number() : first;
    if (last < first || last - first + tokens.size() >= kMaxListedTokens) {
      text.fail(start, last < first ? "the range of tokens ends before it begins; swap its ends"
                                    : fmt::format("more than {} tokens are listed; list fewer",
                                                  kMaxListedTokens));
    }
    for (uint64_t id = first; id <= last; ++id) {
      tokens.push_back(rules.token(require_token(fmt::format("<[{}]>", id), start, text, parts),
                                   {start, text.position()}));
    }
  } while (text.accept(","));
  if (!text.accept("]>")) {
    text.fail(fmt::format("expected ']>' after the ids of tokens, found {}", text.here()));
  }
  return rules.choice(std::move(tokens), {start, text.position()});
}

/// The end of the JSON object that begins at the cursor, as far as brackets and quotes tell.
void skip_object(GrammarText& text, std::string_view what) {
  const size_t start = text.position();
  size_t depth = 0;
  bool quoted = false;
  do {
    if (text.at_end()) {
      text.fail(start, fmt::format("{} is not closed; end it with '}}'", what));
    }
    const char c = text.peek();
    text.skip(quoted && c == '\\' ? 2 : 1);
    quoted = quoted != (c == '"');
    depth += !quoted && c == '{' ? 1 : 0;
    depth -= !quoted && c == '}' ? 1 : 0;
  } while (depth > 0);
}

/// The object alone, at its line and column of the grammar: as long as all before it, so for
/// errors.
std::string at_its_place(const GrammarText& text, size_t start) {
  std::string padded;
  for (const char c : text.between(0, start)) {
    const bool goes_on = (static_cast<uint8_t>(c) & 0xC0) == 0x80;  // columns are characters
    padded += c == '\n' ? "\n" : goes_on ? "" : " ";
  }
  return padded + std::string(text.between(start, text.position()));
}

}  // namespace

ExpressionId read_token(RuleSet& rules, GrammarText& text, const RuleParts& parts) {
  if (text.looking_at("<[")) {
    return read_ids(rules, text, parts);
  }
  const size_t start = text.position();
  while (!text.at_end() && text.peek() != '\n' && text.peek() != '>') {
    text.skip(1);
  }
  if (!text.accept(">")) {
    text.fail(start, "the token's name is not closed; end it with '>'");
  }
  const GrammarSpan span = {start, text.position()};
  const std::string name(text.between(span.begin, span.end));
  return rules.token(require_token(name, start, text, parts), span);
}

JsonValue read_json_object(GrammarText& text, std::string_view what) {
  if (text.peek() != '{') {
    text.fail(fmt::format("expected {}, which begins with '{{', found {}", what, text.here()));
  }
  const size_t begin = text.position();
  skip_object(text, what);
  return parse_json(at_its_place(text, begin), text.where());
}

ExpressionId read_schema(RuleSet& rules, GrammarText& text, const RuleParts& parts, size_t start) {
  if (text.peek() != '{') {
    text.fail(fmt::format("expected a JSON Schema, which begins with '{{', found {}", text.here()));
  }
  const size_t begin = text.position();
  skip_object(text, "the JSON Schema");
  if (!parts.compile_schema) {
    text.fail(begin, "there are no JSON Schemas here");
  }
  const std::string where(text.where());
  std::unique_ptr<Automaton> automaton;
  try {
    const std::string_view schema = text.between(begin, text.position());
    automaton = parts.compile_schema(std::string(schema), where);
  } catch (const GrammarError& error) {
    if (!std::string_view(error.what()).starts_with(where + ":")) {
      text.fail(begin, error.what());
    }
    automaton = parts.compile_schema(at_its_place(text, begin), where);  // throws with the place
  }
  return rules.embedded(std::move(automaton), {start, text.position()});
}

}  // namespace specdec
