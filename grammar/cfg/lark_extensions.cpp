// What llguidance's Lark has besides: its header, attributes of rules, counts in braces, and
// %regex.
#include <algorithm>

#include "core/ascii.h"
#include "core/error.h"
#include "grammar/cfg/lark_common.h"
#include "grammar/cfg/lark_parser.h"
#include "grammar/cfg/lark_substring.h"
#include "grammar/schema/json_value.h"

namespace specdec {
namespace {

constexpr uint64_t kMaxTokens = 1'000'000'000;
constexpr std::string_view kKnownAttributes =
    "lazy, suffix=..., stop=..., max_tokens=... and capture are";

/// Why there is no such attribute, and what to write.
std::string instead_of_attribute(std::string_view name) {
  if (name == "temperature") {
    return ": a grammar says which texts there are; set the temperature of the whole run in "
           "'sampling'";
  }
  return fmt::format("; {}", kKnownAttributes);
}

}  // namespace

/// name[...]: the body is a terminal; behind a rule's may stand what is ignored.
void LarkParser::define_with_attributes(std::string_view name, bool is_terminal, size_t position) {
  const size_t start = text_.position();
  const Attributes read = attributes();
  const bool ends_itself = read.lazy || read.suffix;
  if (ends_itself && read.max_tokens > 0) {
    text_.fail(start,
               "max_tokens ends a text after any token, but lazy ones and those with a suffix end "
               "where they say; write /[^E]*/ with max_tokens, and \"END\" behind it in a rule");
  }
  if (is_terminal && read.capture) {
    text_.fail(start,
               fmt::format("the text of a rule is captured, not that of a terminal; write a rule "
                           "name[capture]: {}",
                           name));
  }
  if (ends_itself) {
    define_lazy(name, is_terminal, position, read);
  } else if (read.max_tokens > 0) {
    define_limited(name, is_terminal, position, read);
  } else {
    define_captured(name, position, read);
  }
}

/// A name in capital letters stands for it in rules, but in no terminal.
void LarkParser::define_limited(std::string_view name, bool is_terminal, size_t position,
                                const Attributes& read) {
  begin_body(name);
  in_terminal_ = true;
  const ExpressionId body = expansions();
  const RuleId terminal = rules_.find(fmt::format("{}[max_tokens]", name), position);
  rules_.define(terminal, body, position, text_);
  rules_.rule(terminal).is_terminal = true;
  in_terminal_ = is_terminal;
  const GrammarSpan span = {position, position + name.size()};
  const ExpressionId limited =
      rules_.limited(rules_.rule(terminal, rules_[body].span), read.max_tokens, span);
  rules_.define(rules_.find(name, position), captured(in_rule(limited), name, read), position,
                text_);
}

void LarkParser::define_captured(std::string_view name, size_t position, const Attributes& read) {
  begin_body(name);
  in_terminal_ = false;
  rules_.define(rules_.find(name, position), captured(expansions(), name, read), position, text_);
}

/// `body`: what is reported of a text with a suffix.
ExpressionId LarkParser::captured(ExpressionId whole, std::string_view name, const Attributes& read,
                                  std::optional<ExpressionId> body) {
  if (!read.capture) {
    return whole;
  }
  has_captures_ = true;
  RuleSet::CaptureMark mark = {.name = read.capture->empty() ? std::string(name) : *read.capture};
  if (body && read.suffix) {
    mark.body = body;
    mark.suffix = read.suffix;
  }
  return rules_.capture(whole, std::move(mark), rules_[whole].span);
}

void LarkParser::define_lazy(std::string_view name, bool is_terminal, size_t position,
                             const Attributes& read) {
  begin_body(name);
  in_terminal_ = true;
  const ExpressionId body = expansions();
  const GrammarSpan span = rules_[body].span;
  const ExpressionId whole =
      rules_.shortest(read.suffix ? rules_.sequence({body, *read.suffix}, span) : body, span);
  const RuleId terminal = rules_.find(is_terminal ? name : fmt::format("{}[lazy]", name), position);
  rules_.define(terminal, whole, position, text_);
  rules_.rule(terminal).is_terminal = true;
  if (!is_terminal) {
    in_terminal_ = false;
    rules_.define(rules_.find(name, position),
                  captured(in_rule(rules_.rule(terminal, span)), name, read, body), position,
                  text_);
  }
}

LarkParser::Attributes LarkParser::attributes() {
  Attributes read;
  in_terminal_ = true;
  list("]", [&] { attribute(read); });
  return read;
}

void LarkParser::attribute(Attributes& read) {
  const size_t start = text_.position();
  const std::string_view name = text_.take_word("_");
  check_attribute(read, name, start);
  read.names.push_back(name);
  skip_blanks();
  const bool has_value = text_.accept("=");
  skip_blanks();
  if (name == "lazy") {
    if (has_value) {
      text_.fail(start, "lazy takes no value; write lazy alone, or leave it out");
    }
    read.lazy = true;
  } else if (name == "capture") {
    capture(read, has_value, start);
  } else if (name == "max_tokens") {
    read.max_tokens = token_count(has_value);
  } else {
    if (!has_value) {
      text_.fail(start, fmt::format("{0} needs a text: {0}=\"END\"", name));
    }
    read.suffix = ending(name);
  }
}

/// Fails unless there is such an attribute, which those before it leave room for.
void LarkParser::check_attribute(const Attributes& read, std::string_view name,
                                 size_t start) const {
  if (name.empty()) {
    text_.fail(start, fmt::format("expected the name of an attribute, found {}; {} supported",
                                  text_.here(), kKnownAttributes));
  }
  const bool is_ending = name == "suffix" || name == "stop";
  if (!is_ending && name != "lazy" && name != "max_tokens" && name != "capture") {
    text_.fail(start, fmt::format("the attribute '{}' is not supported{}", name,
                                  instead_of_attribute(name)));
  }
  if (std::ranges::count(read.names, name) > 0) {
    text_.fail(start, fmt::format("'{}' stands here twice; leave one out", name));
  }
  if (is_ending && read.suffix) {
    text_.fail(start, "suffix and stop are the same; leave one out");
  }
}

/// What follows max_tokens=.
uint64_t LarkParser::token_count(bool has_value) {
  const size_t start = text_.position();
  if (!has_value || !is_digit(text_.peek())) {
    text_.fail(start, "max_tokens needs a number: max_tokens=20");
  }
  uint64_t count = 0;
  for (; is_digit(text_.peek()); text_.skip(1)) {
    count = std::min(count * 10 + static_cast<uint64_t>(text_.peek() - '0'), kMaxTokens + 1);
  }
  if (count < 1 || count > kMaxTokens) {
    text_.fail(start, fmt::format("max_tokens must be from 1 to {}", kMaxTokens));
  }
  return count;
}

/// `capture`, or the name that follows it.
void LarkParser::capture(Attributes& read, bool has_name, size_t start) {
  if (parts_.is_part) {
    text_.fail(start,
               "captures are those of a whole Lark grammar; this one is a part of a structured "
               "text: leave capture out");
  }
  if (has_name && text_.peek() != '"') {
    text_.fail("expected the capture's name in quotes");
  }
  read.capture = has_name ? to_utf8(text_.take_quoted("\"\\")) : "";
  if (has_name && read.capture->empty()) {
    text_.fail(start, "the capture's name is empty; write one, or capture alone");
  }
}

/// What follows suffix= or stop=.
ExpressionId LarkParser::ending(std::string_view attribute) {
  const size_t start = text_.position();
  const auto ending = atom();
  if (!ending) {
    text_.fail(fmt::format("expected the {}: \"text\", /expression/ or a terminal", attribute));
  }
  if (rules_[*ending].kind == RuleExpression::Kind::kLiteral &&
      rules_.literal_text(rules_[*ending]).empty()) {
    text_.fail(start,
               attribute == "stop"
                   ? "an empty stop, which stands for the end of generation, is not supported; "
                     "leave stop out: generation may end wherever the text is complete"
                   : "an empty suffix is not supported; write lazy instead for the shortest text, "
                     "or leave suffix out");
  }
  return *ending;
}

/// {n}, {n,}, {,n} or {n,m}
bool LarkParser::at_braced_counts() const {
  const char next = text_.peek(1);
  return text_.peek() == '{' && (next == ',' || is_digit(next));
}

void LarkParser::braced_counts(uint64_t& min, uint64_t& max) {
  const size_t start = text_.position();
  text_.skip(1);
  min = text_.peek() == ',' ? 0 : text_.take_number();
  max = min;
  if (text_.accept(",")) {
    max = text_.peek() == '}' ? RuleSet::kUnbounded : text_.take_number();
  }
  if (!text_.accept("}")) {
    text_.fail(fmt::format("expected '}}' after the counts, found {}", text_.here()));
  }
  if (max < min) {
    text_.fail(start, "the repetition's larger count stands first; swap the two");
  }
}

/// %llguidance {...}: the header of llguidance's grammars, with its options.
void LarkParser::guidance(size_t start) {
  const JsonValue options = read_json_object(text_, "the object of %llguidance");
  for (const JsonMember& option : options.members) {
    if (option.name != "no_forcing" && option.name != "allow_invalid_utf8") {
      text_.fail(start, fmt::format("%llguidance has no option '{}'; known: no_forcing, "
                                    "allow_invalid_utf8",
                                    option.name));
    }
    if (!option.value.is_boolean()) {
      text_.fail(start,
                 fmt::format("the option '{}' of %llguidance is true or false", option.name));
    }
    if (option.name == "allow_invalid_utf8" && option.value.is(JsonValue::Type::kTrue)) {
      text_.fail(start,
                 "the option 'allow_invalid_utf8' of %llguidance is not supported: texts are "
                 "UTF-8; leave it out");
    }
  }
}

/// %regex {"substring_words": "..."} or %json {...}, from the percent sign on.
ExpressionId LarkParser::embedded() {
  const size_t start = text_.position();
  text_.skip(1);
  const std::string_view kind = text_.take_word("_");
  skip_blanks();
  if (kind == "json") {
    return schema(start);
  }
  if (kind != "regex") {
    text_.fail(start, fmt::format("'%{}' is not supported here; %regex and %json are", kind));
  }
  const auto [regex, size] = read_lark_substring(regexes_, text_);
  end_ = text_.position();
  return rules_.regex(regex, size, {start, end_});
}

ExpressionId LarkParser::schema(size_t start) {
  const auto known = schemas_.find(start);
  if (known != schemas_.end()) {
    text_.seek(rules_[known->second].span.end);
  } else {
    schemas_[start] = read_schema(rules_, text_, parts_, start);
  }
  end_ = text_.position();
  return schemas_[start];
}

/// What is ignored may follow it, unless generation ends with it.
ExpressionId LarkParser::token() {
  const ExpressionId tokens = read_token(rules_, text_, parts_);
  end_ = text_.position();
  if (rules_[tokens].kind == RuleExpression::Kind::kToken) {
    return ends(tokens) ? tokens : in_rule(tokens);
  }
  std::vector<ExpressionId> lasts;
  std::vector<ExpressionId> others;
  for (const ExpressionId token : rules_[tokens].children) {
    (ends(token) ? lasts : others).push_back(token);
  }
  if (lasts.empty()) {
    return in_rule(tokens);
  }
  const GrammarSpan span = rules_[tokens].span;
  if (!others.empty()) {
    lasts.push_back(in_rule(rules_.choice(std::move(others), span)));
  }
  return rules_.choice(std::move(lasts), span);
}

/// Whether generation ends with it: such a token, or a name in capital letters for one.
bool LarkParser::ends(ExpressionId id) const {
  const RuleExpression& named = rules_[id];
  const bool is_name = named.kind == RuleExpression::Kind::kRule;
  const RuleExpression& body = is_name ? rules_[*rules_.rules()[named.a].body] : named;
  return body.kind == RuleExpression::Kind::kToken && rules_.named_token(body).ends;
}

/// Once all names are defined: nothing is ignored behind those with which generation ends.
void LarkParser::end_at_terminals() {
  for (const ExpressionId use : terminal_uses_) {
    if (ends(rules_[use].children.front())) {
      rules_.drop_last_part(use);
    }
  }
}

/// A name in capital letters for a token or schema is one for a rule.
void LarkParser::set_terminal(RuleId rule) {
  rules_.rule(rule).is_terminal = !rules_.is_whole(*rules_.rules()[rule].body);
}

}  // namespace specdec
