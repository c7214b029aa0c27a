#include "grammar/cfg/lark_parser.h"

#include "core/ascii.h"
#include "core/error.h"
#include "grammar/cfg/lark_common.h"

namespace specdec {
namespace {

constexpr size_t kMaxInstances = 10'000;   ///< of templates
constexpr size_t kMaxInstanceName = 1000;  ///< bytes; grows where templates nest without end

bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '_'; }

}  // namespace

LarkParser::LarkParser(RegexStore& regexes, GrammarText& text, const RuleParts& parts)
    : regexes_(regexes),
      text_(text),
      parts_(parts),
      patterns_(regexes, text, rules_),
      terminals_(text, rules_, patterns_),
      ignore_(rules_.find("%ignore", 0)) {}

RuleSet LarkParser::parse() {
  for (skip_lines(); !text_.at_end(); skip_lines()) {
    statement();
  }
  for (size_t i = 0; i < instances_.size(); ++i) {
    instantiate(Instance(instances_[i]));
  }
  define_ignore();
  check_declared();
  rules_.check_defined(text_);
  end_at_terminals();
  patterns_.close();
  return std::move(rules_);
}

RuleId LarkParser::add_whole(RuleSet& rules, std::string_view name) const {
  const RuleId start = rules.require(name, text_);
  const size_t position = rules.rules()[start].position;
  const GrammarSpan span = {position, position + name.size()};
  const RuleId whole = rules.find("%start", position);
  rules.define(whole,
               rules.sequence({rules.rule(ignore_, ignore_span_), rules.rule(start, span)}, span),
               position, text_);
  rules.rule(whole).name = name;
  return whole;
}

/// White space and comments of a line; at most up to its end.
void LarkParser::skip_blanks() {
  for (;; text_.skip(1)) {
    const char c = text_.peek();
    if (text_.looking_at("//") || c == '#') {
      text_.skip_line();
      return;
    }
    if (c == '\\' && (text_.peek(1) == '\n' || text_.looking_at("\\\r\n"))) {
      text_.skip(text_.peek(1) == '\n' ? 1 : 2);
    } else if (c != ' ' && c != '\t' && c != '\r' && c != '\f') {
      return;
    }
  }
}

void LarkParser::skip_lines() {
  for (skip_blanks(); text_.peek() == '\n'; skip_blanks()) {
    text_.skip(1);
  }
}

/// Skips space; within expansions to the next line too, when that is still a part of it.
void LarkParser::skip_space() {
  skip_blanks();
  const size_t end = text_.position();
  skip_lines();
  if (!text_.in_group() && text_.peek() != '|') {
    text_.seek(end);
  }
}

void LarkParser::end_line() {
  skip_blanks();
  if (!text_.at_end() && text_.peek() != '\n') {
    text_.fail(fmt::format("expected the end of the line, found {}", text_.here()));
  }
}

ExpressionId LarkParser::expansions() {
  skip_space();
  const size_t start = text_.position();
  std::vector<ExpressionId> parts;
  do {
    parts.push_back(sequence());
  } while (text_.accept("|"));
  return rules_.choice(std::move(parts), span_from(start));
}

ExpressionId LarkParser::sequence() {
  skip_space();
  const size_t start = text_.position();
  end_ = start;
  std::vector<ExpressionId> parts;
  for (auto part = element(); part; part = element()) {
    parts.push_back(*part);
    end_ = text_.position();
    skip_space();
  }
  if (text_.accept("->")) {
    skip_space();
    take_name();
    skip_space();
  }
  return rules_.sequence(std::move(parts), span_from(start));
}

std::optional<ExpressionId> LarkParser::element() {
  const size_t start = text_.position();
  const auto part = atom();
  if (!part) {
    return std::nullopt;
  }
  end_ = text_.position();
  skip_blanks();
  uint64_t min = 0;
  uint64_t max = RuleSet::kUnbounded;
  if (text_.accept("+")) {
    min = 1;
  } else if (text_.peek() == '?' && !(text_.peek(1) >= 'a' && text_.peek(1) <= 'z') &&
             text_.peek(1) != '_') {
    text_.skip(1);
    max = 1;
  } else if (text_.accept("~")) {
    counts(min, max);
  } else if (at_braced_counts()) {
    braced_counts(min, max);
  } else if (!text_.accept("*")) {
    text_.seek(end_);
    return part;
  }
  end_ = text_.position();
  return rules_.repeat(*part, min, max, span_from(start));
}

void LarkParser::counts(uint64_t& min, uint64_t& max) {
  const size_t start = text_.position() - 1;
  skip_blanks();
  min = max = text_.take_number();
  const size_t end = text_.position();
  skip_blanks();
  if (text_.accept("..")) {
    skip_blanks();
    max = text_.take_number();
  } else {
    text_.seek(end);
  }
  if (max < min) {
    text_.fail(start, "the repetition's larger count stands first; swap the two");
  }
}

std::optional<ExpressionId> LarkParser::atom() {
  const size_t start = text_.position();
  switch (text_.peek()) {
    case '(':
      return group(")");
    case '[': {
      const ExpressionId body = group("]");
      end_ = text_.position();
      return rules_.repeat(body, 0, 1, span_from(start));
    }
    case '"':
      return in_rule(terminals_.literal());
    case '/':
      return in_rule(terminals_.pattern(in_terminal_));
    case '%':
      return in_rule(embedded());
    case '<':
      return token();
    default:
      return name();
  }
}

/// What is ignored may follow a terminal in a rule.
ExpressionId LarkParser::in_rule(ExpressionId terminal) {
  if (in_terminal_) {
    return terminal;
  }
  const GrammarSpan span = rules_[terminal].span;
  return rules_.sequence({terminal, rules_.rule(ignore_, span)}, span);
}

ExpressionId LarkParser::group(std::string_view close) {
  const size_t start = text_.position();
  text_.open_group();
  const ExpressionId body = expansions();
  text_.close_group(start, close);
  return body;
}

std::string_view LarkParser::take_name() {
  const size_t start = text_.position();
  text_.take_word("_");
  while (text_.position() > start && text_.peek() == '-' && is_word(text_.peek(1))) {
    text_.skip(1);
    text_.take_word("_");
  }
  return text_.between(start, text_.position());
}

std::optional<ExpressionId> LarkParser::name() {
  const size_t start = text_.position();
  const std::string_view word = take_name();
  if (word.empty()) {
    return std::nullopt;
  }
  const auto terminal = is_lark_terminal(word);
  if (!terminal) {
    bad_name(word, start);
  }
  if (in_terminal_ && !*terminal) {
    text_.fail(start, fmt::format("a terminal cannot use the rule '{}'; make it a terminal, with "
                                  "a name in capital letters",
                                  word));
  }
  end_ = text_.position();
  if (const auto found = arguments_.find(word); found != arguments_.end()) {
    return found->second.expression;
  }
  skip_blanks();
  if (text_.peek() == '{' && !at_braced_counts()) {
    return use_template(word, start);
  }
  text_.seek(end_);
  const ExpressionId use = rules_.rule(rules_.find(word, start), span_from(start));
  if (!*terminal || in_terminal_) {
    return use;
  }
  terminal_uses_.push_back(in_rule(use));
  return terminal_uses_.back();
}

/// name{argument, ...}, from the brace on. Equal uses are one rule.
ExpressionId LarkParser::use_template(std::string_view name, size_t start) {
  Instance instance;
  instance.name = name;
  instance.position = start;
  std::string key = std::string(name) + "{";
  list("}", [&] {
    instance.arguments.push_back(argument());
    key += (key.back() == '{' ? "" : ", ") + instance.arguments.back().name;
  });
  key += "}";
  end_ = text_.position();
  if (key.size() > kMaxInstanceName || instances_.size() > kMaxInstances) {
    text_.fail(start,
               fmt::format("the template '{}' needs more and more of itself; let it end", name));
  }
  if (defines_template_) {
    return rules_.sequence({}, {});
  }
  instance.rule = rules_.find(key, start);
  if (instantiated_.insert(instance.rule).second) {
    instances_.push_back(instance);
  }
  return rules_.rule(instance.rule, span_from(start));
}

/// A rule, terminal, literal, expression or template's use.
LarkParser::Argument LarkParser::argument() {
  const size_t start = text_.position();
  const bool is_text = text_.peek() == '"' || text_.peek() == '/';
  const std::string_view word = take_name();
  text_.seek(start);
  const auto expression = is_text || !word.empty() ? atom() : std::nullopt;
  if (!expression) {
    text_.fail(fmt::format("expected a name, a text in quotes or a /regular expression/, found {}",
                           text_.here()));
  }
  if (const auto outer = arguments_.find(word); !is_text && outer != arguments_.end()) {
    return outer->second;
  }
  const RuleExpression& used = rules_[*expression];
  if (used.kind == RuleExpression::Kind::kRule) {
    return {rules_.rules()[used.a].name, *expression};
  }
  return {std::string(text_.between(start, text_.position())), *expression};
}

}  // namespace specdec
