#include "grammar/cfg/lark.h"

#include "core/error.h"
#include "grammar/cfg/context_free_builder.h"
#include "grammar/cfg/earley_automaton.h"
#include "grammar/cfg/lark_common.h"
#include "grammar/cfg/lark_terminals.h"
#include "grammar/regex/regex_parser.h"

namespace specdec {
namespace {

class LarkParser {
 public:
  LarkParser(RegexStore& regexes, GrammarText& text)
      : regexes_(regexes),
        text_(text),
        terminals_(regexes, text, rules_),
        ignore_(rules_.find("%ignore", 0)) {}

  RuleSet parse() {
    for (skip_lines(); !text_.at_end(); skip_lines()) {
      statement();
    }
    define_ignore();
    return std::move(rules_);
  }

  /// A rule for whole texts, which are those of `name` and may begin with what is ignored.
  RuleId add_whole(RuleSet& rules, std::string_view name) const {
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

 private:
  // -- Space

  /// White space and comments of a line; at most up to its end.
  void skip_blanks() {
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

  void skip_lines() {
    for (skip_blanks(); text_.peek() == '\n'; skip_blanks()) {
      text_.skip(1);
    }
  }

  /// Within expansions: to the next line too, when that is still a part of it.
  void skip_space() {
    skip_blanks();
    const size_t end = text_.position();
    skip_lines();
    if (!text_.in_group() && text_.peek() != '|') {
      text_.seek(end);
    }
  }

  void end_line() {
    skip_blanks();
    if (!text_.at_end() && text_.peek() != '\n') {
      text_.fail(fmt::format("expected the end of the line, found {}", text_.here()));
    }
  }

  // -- Statements

  void statement() {
    if (text_.peek() == '%') {
      directive();
    } else {
      definition();
    }
    end_line();
  }

  void directive() {
    const size_t start = text_.position();
    text_.skip(1);
    const std::string_view name = text_.take_word("_");
    skip_blanks();
    if (name == "ignore") {
      ignore(start);
    } else if (name == "import") {
      import();
    } else if (name == "declare" || name == "override" || name == "extend") {
      text_.fail(start, fmt::format("%{} is not supported; write the whole definition here", name));
    } else {
      text_.fail(start, fmt::format("unknown directive '%{}'; known: %ignore, %import", name));
    }
  }

  void ignore(size_t start) {
    in_terminal_ = true;
    ignored_.push_back(expansions());
    if (ignored_.size() == 1) {
      rules_.rule(ignore_).position = start;
      ignore_span_ = rules_[ignored_[0]].span;
    }
  }

  void define_ignore() {
    const size_t position = rules_.rules()[ignore_].position;
    const ExpressionId body = ignored_.empty()
                                  ? rules_.sequence({}, {})
                                  : rules_.repeat(rules_.choice(std::move(ignored_), ignore_span_),
                                                  0, RuleSet::kUnbounded, ignore_span_);
    rules_.define(ignore_, body, position, text_);
    rules_.rule(ignore_).is_terminal = true;
  }

  /// %import common.NAME, common.NAME -> OTHER, common (NAME, NAME)
  void import() {
    const size_t start = text_.position();
    const std::string_view module = text_.take_word("_");
    if (module != "common") {
      text_.fail(start, "only terminals of 'common' can be imported; write others here");
    }
    if (text_.accept(".")) {
      const std::string_view name = text_.take_word("_");
      skip_blanks();
      std::string_view alias = name;
      if (text_.accept("->")) {
        skip_blanks();
        alias = text_.take_word("_");
      }
      define_common(name, alias, start);
      return;
    }
    skip_blanks();
    if (!text_.accept("(")) {
      text_.fail(
          fmt::format("expected '.NAME' or '(NAME, ...)' after 'common', found {}", text_.here()));
    }
    do {
      skip_lines();
      const size_t position = text_.position();
      const std::string_view name = text_.take_word("_");
      define_common(name, name, position);
      skip_lines();
    } while (text_.accept(","));
    if (!text_.accept(")")) {
      text_.fail(fmt::format("expected ')' after the imported names, found {}", text_.here()));
    }
  }

  void define_common(std::string_view name, std::string_view alias, size_t position) {
    const auto pattern = lark_common_pattern(name);
    if (!pattern) {
      text_.fail(position, fmt::format("'common' has no terminal '{}'; known: {}", name,
                                       lark_common_names()));
    }
    if (is_lark_terminal(alias) != true) {
      text_.fail(position,
                 fmt::format("'{}' is no name for a terminal; use capital letters", alias));
    }
    const RuleId rule = rules_.find(alias, position);
    rules_.define(rule,
                  rules_.regex(parse_regex(regexes_, *pattern, false), pattern->size(),
                               {position, text_.position()}),
                  position, text_);
    rules_.rule(rule).is_terminal = true;
  }

  void definition() {
    while (text_.accept("?") || text_.accept("!")) {
    }
    const size_t name_start = text_.position();
    const std::string_view name = text_.take_word("_");
    const auto terminal = is_lark_terminal(name);
    if (name.empty()) {
      text_.fail(fmt::format("expected the name of a rule or terminal, found {}", text_.here()));
    }
    if (!terminal) {
      bad_name(name, name_start);
    }
    refuse_template();
    priority();
    skip_blanks();
    if (!text_.accept(":")) {
      text_.fail(fmt::format("expected ':' after '{}', found {}", name, text_.here()));
    }
    in_terminal_ = *terminal;
    const RuleId rule = rules_.find(name, name_start);
    rules_.rule(rule).is_terminal = *terminal;
    rules_.define(rule, expansions(), name_start, text_);
  }

  [[noreturn]] void bad_name(std::string_view name, size_t position) const {
    text_.fail(
        position,
        fmt::format("'{}' is no name; rules are named in small letters, terminals in capital "
                    "ones",
                    name));
  }

  void refuse_template() const {
    if (text_.peek() == '{') {
      text_.fail("templates are not supported; write a rule for each use");
    }
  }

  void priority() {
    if (text_.accept(".")) {
      text_.accept("-");
      text_.take_number();
    }
  }

  // -- Expansions

  GrammarSpan span_from(size_t start) const { return {start, end_}; }

  ExpressionId expansions() {
    skip_space();
    const size_t start = text_.position();
    std::vector<ExpressionId> parts;
    do {
      parts.push_back(sequence());
    } while (text_.accept("|"));
    return rules_.choice(std::move(parts), span_from(start));
  }

  ExpressionId sequence() {
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
      text_.take_word("_");
      skip_space();
    }
    return rules_.sequence(std::move(parts), span_from(start));
  }

  std::optional<ExpressionId> element() {
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
    } else if (text_.peek() == '?' && !(text_.peek(1) >= 'a' && text_.peek(1) <= 'z')) {
      text_.skip(1);
      max = 1;
    } else if (text_.accept("~")) {
      counts(min, max);
    } else if (!text_.accept("*")) {
      text_.seek(end_);
      return part;
    }
    end_ = text_.position();
    return rules_.repeat(*part, min, max, span_from(start));
  }

  void counts(uint64_t& min, uint64_t& max) {
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

  std::optional<ExpressionId> atom() {
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
        return in_rule(terminals_.pattern());
      default:
        return name();
    }
  }

  /// What is ignored may follow a terminal in a rule.
  ExpressionId in_rule(ExpressionId terminal) {
    if (in_terminal_) {
      return terminal;
    }
    const GrammarSpan span = rules_[terminal].span;
    return rules_.sequence({terminal, rules_.rule(ignore_, span)}, span);
  }

  ExpressionId group(std::string_view close) {
    const size_t start = text_.position();
    text_.open_group();
    const ExpressionId body = expansions();
    text_.close_group(start, close);
    return body;
  }

  std::optional<ExpressionId> name() {
    const size_t start = text_.position();
    const std::string_view word = text_.take_word("_");
    if (word.empty()) {
      return std::nullopt;
    }
    const auto terminal = is_lark_terminal(word);
    if (!terminal) {
      bad_name(word, start);
    }
    refuse_template();
    if (in_terminal_ && !*terminal) {
      text_.fail(start, fmt::format("a terminal cannot use the rule '{}'; make it a terminal, with "
                                    "a name in capital letters",
                                    word));
    }
    end_ = text_.position();
    const ExpressionId use = rules_.rule(rules_.find(word, start), span_from(start));
    return *terminal ? in_rule(use) : use;
  }

  RegexStore& regexes_;
  GrammarText& text_;
  RuleSet rules_;
  LarkTerminals terminals_;
  RuleId ignore_;  ///< what may stand between terminals
  std::vector<ExpressionId> ignored_;
  GrammarSpan ignore_span_;
  bool in_terminal_ = false;
  size_t end_ = 0;  ///< behind the last part that was read
};

}  // namespace

std::unique_ptr<Automaton> make_lark_automaton(RegexStore& regexes, std::string_view text,
                                               std::string_view where, const GrammarLimits& limits,
                                               std::string_view start) {
  GrammarText reader(text, where, limits);
  LarkParser parser(regexes, reader);
  RuleSet rules = parser.parse();
  rules.check_defined(reader);
  const RuleId whole = parser.add_whole(rules, start);
  return std::make_unique<EarleyAutomaton>(
      regexes, make_context_free(regexes, rules, whole, reader, limits), limits);
}

}  // namespace specdec
