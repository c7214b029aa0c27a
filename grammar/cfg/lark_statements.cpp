// Definitions, templates and directives.
#include "core/error.h"
#include "grammar/cfg/lark_common.h"
#include "grammar/cfg/lark_parser.h"

namespace specdec {

void LarkParser::statement() {
  if (text_.peek() == '%') {
    directive();
  } else {
    definition();
  }
  end_line();
}

void LarkParser::directive() {
  const size_t start = text_.position();
  text_.skip(1);
  const std::string_view name = text_.take_word("_");
  skip_blanks();
  if (name == "ignore") {
    ignore(start);
  } else if (name == "import") {
    import();
  } else if (name == "declare") {
    declare();
  } else if (name == "llguidance") {
    guidance(start);
  } else if (name == "override" || name == "extend") {
    text_.fail(start, fmt::format("%{} is not supported; write the whole definition here", name));
  } else {
    text_.fail(start, fmt::format("unknown directive '%{}'; known: %ignore, %import, %declare, "
                                  "%llguidance",
                                  name));
  }
}

void LarkParser::ignore(size_t start) {
  in_terminal_ = true;
  const ExpressionId body = expansions();
  const RuleId rule = rules_.find(fmt::format("%ignore {}", ignored_.size()), start);
  rules_.define(rule, body, start, text_);
  rules_.rule(rule).is_terminal = true;
  ignored_.push_back(rules_.rule(rule, rules_[body].span));
  if (ignored_.size() == 1) {
    rules_.rule(ignore_).position = start;
    ignore_span_ = rules_[body].span;
  }
}

void LarkParser::define_ignore() {
  const size_t position = rules_.rules()[ignore_].position;
  const bool is_marked = has_captures_ && !ignored_.empty();
  const ExpressionId body = ignored_.empty()
                                ? rules_.sequence({}, {})
                                : rules_.repeat(rules_.choice(std::move(ignored_), ignore_span_), 0,
                                                RuleSet::kUnbounded, ignore_span_);
  const ExpressionId marked =
      is_marked ? rules_.capture(body, {.is_ignored = true}, ignore_span_) : body;
  rules_.define(ignore_, marked, position, text_);
}

/// %import common.NAME, common.NAME -> OTHER, common (NAME, NAME)
void LarkParser::import() {
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
  if (text_.peek() != '(') {
    text_.fail(
        fmt::format("expected '.NAME' or '(NAME, ...)' after 'common', found {}", text_.here()));
  }
  list(")", [&] {
    const size_t position = text_.position();
    const std::string_view name = text_.take_word("_");
    define_common(name, name, position);
  });
}

/// %declare NAME NAME
void LarkParser::declare() {
  do {
    const size_t start = text_.position();
    const std::string_view name = text_.take_word("_");
    if (is_lark_terminal(name) != true) {
      text_.fail(start, "expected the name of a terminal, in capital letters");
    }
    declared_.emplace(name, start);
    skip_blanks();
  } while (!text_.at_end() && text_.peek() != '\n');
}

/// A program of Lark's reads declared terminals itself: no text here is one.
void LarkParser::check_declared() const {
  for (const RuleSet::Rule& rule : rules_.rules()) {
    const auto declared = declared_.find(rule.name);
    if (declared == declared_.end()) {
      continue;
    }
    if (rule.body) {
      text_.fail(declared->second,
                 fmt::format("'{}' is declared and defined; leave out its %declare", rule.name));
    }
    text_.fail(rule.position,
               fmt::format("the terminal '{}' is declared with %declare: such terminals come from "
                           "a program's own lexer and match no text here; define it, with "
                           "\"text\" or an /expression/",
                           rule.name));
  }
}

void LarkParser::define_common(std::string_view name, std::string_view alias, size_t position) {
  const auto pattern = lark_common_pattern(name);
  if (!pattern) {
    text_.fail(position,
               fmt::format("'common' has no terminal '{}'; known: {}", name, lark_common_names()));
  }
  if (is_lark_terminal(alias) != true) {
    text_.fail(position, fmt::format("'{}' is no name for a terminal; use capital letters", alias));
  }
  const auto [known, is_new] = imported_.try_emplace(alias, name);
  if (!is_new && known->second == name) {
    return;
  }
  const RuleId rule = rules_.find(alias, position);
  rules_.define(rule, patterns_.part(std::string(*pattern), {position, text_.position()}), position,
                text_);
  rules_.rule(rule).is_terminal = true;
}

void LarkParser::definition() {
  const size_t modifiers = text_.position();
  while (text_.accept("?") || text_.accept("!")) {
  }
  const size_t start = text_.position();
  const std::string_view name = take_name();
  const auto terminal = is_lark_terminal(name);
  if (name.empty()) {
    text_.fail(fmt::format("expected the name of a rule or terminal, found {}", text_.here()));
  }
  if (!terminal) {
    bad_name(name, start);
  }
  if (*terminal && start > modifiers) {
    text_.fail(modifiers, fmt::format("'{0}' stands before rules only, and '{1}' is a terminal; "
                                      "write '{1}' alone",
                                      text_.between(modifiers, start), name));
  }
  skip_blanks();
  if (text_.peek() == '{') {
    define_template(name, start);
  } else if (text_.peek() == '[') {
    define_with_attributes(name, *terminal, start);
  } else {
    define_rule(name, *terminal, start);
  }
}

/// What stands behind the name.
void LarkParser::begin_body(std::string_view name) {
  if (text_.accept(".")) {  // a priority: it chooses among trees
    text_.accept("-");
    text_.take_number();
  }
  skip_blanks();
  if (!text_.accept(":")) {
    text_.fail(fmt::format("expected ':' after '{}', found {}", name, text_.here()));
  }
}

void LarkParser::define_rule(std::string_view name, bool is_terminal, size_t position) {
  begin_body(name);
  in_terminal_ = is_terminal;
  const RuleId rule = rules_.find(name, position);
  rules_.define(rule, expansions(), position, text_);
  if (is_terminal) {
    set_terminal(rule);
  }
}

/// Reads the body once, so that mistakes in it are found without a use too.
void LarkParser::define_template(std::string_view name, size_t position) {
  if (is_lark_terminal(name) == true) {
    text_.fail(position, fmt::format("the template '{}' has a terminal's name; only rules, in "
                                     "small letters, can be templates",
                                     name));
  }
  Template definition;
  list("}", [&] {
    const size_t start = text_.position();
    definition.parameters.push_back(take_name());
    if (is_lark_terminal(definition.parameters.back()) != false) {
      text_.fail(start, "expected a parameter's name, in small letters");
    }
    const Argument none = {"", rules_.sequence({}, {})};
    if (!arguments_.emplace(definition.parameters.back(), none).second) {
      text_.fail(start, fmt::format("the template has two parameters '{}'; rename one",
                                    definition.parameters.back()));
    }
  });
  begin_body(name);
  definition.body = text_.position();
  if (!templates_.emplace(name, std::move(definition)).second) {
    text_.fail(position, fmt::format("the template '{}' is defined twice; rename one", name));
  }
  in_terminal_ = false;
  defines_template_ = true;
  expansions();
  defines_template_ = false;
  arguments_.clear();
}

void LarkParser::instantiate(const Instance& instance) {
  const auto found = templates_.find(instance.name);
  if (found == templates_.end()) {
    text_.fail(instance.position, fmt::format("there is no template '{}'; define it as "
                                              "'{}{{...}}: ...'",
                                              instance.name, instance.name));
  }
  const Template& definition = found->second;
  if (definition.parameters.size() != instance.arguments.size()) {
    text_.fail(instance.position,
               fmt::format("the template '{}' takes {} arguments, here are {}", instance.name,
                           definition.parameters.size(), instance.arguments.size()));
  }
  for (size_t i = 0; i < instance.arguments.size(); ++i) {
    arguments_[definition.parameters[i]] = instance.arguments[i];
  }
  in_terminal_ = false;
  text_.seek(definition.body);
  rules_.define(instance.rule, expansions(), instance.position, text_);
  arguments_.clear();
}

void LarkParser::bad_name(std::string_view name, size_t position) const {
  text_.fail(position,
             fmt::format("'{}' is no name; rules are named in small letters, terminals in capital "
                         "ones",
                         name));
}

}  // namespace specdec
