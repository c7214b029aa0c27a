#include "grammar/tags/trigger_automaton.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "grammar/tags/tag_automaton.h"

namespace specdec {
namespace {

void check_rules(const std::vector<TriggerRule>& rules) {
  std::set<std::string> begins;
  for (size_t i = 0; i < rules.size(); ++i) {
    const TriggerRule& rule = rules[i];
    if (rule.begin.empty() || !is_utf8(rule.begin) || !is_utf8(rule.end)) {
      throw GrammarError(
          fmt::format("trigger {}: the begin tag must not be empty, and both tags "
                      "must be UTF-8",
                      i + 1));
    }
    SPECDEC_CHECK(rule.grammar != nullptr, "trigger '{}' without a grammar", rule.begin);
    if (rule.grammar->start() == Automaton::kDead) {
      throw GrammarError(fmt::format("trigger '{}': its grammar has no text", rule.begin));
    }
    if (!begins.insert(rule.begin).second) {
      throw GrammarError(
          fmt::format("trigger '{}': there are two of it; remove one of them", rule.begin));
    }
  }
}

/// Tag of a rule, whose content says which rule's grammar it is.
TagFormat tag_of(const TriggerRule& rule, size_t index) {
  TagFormat content = grammar_format({.type = "rule", .text = std::to_string(index)});
  TagFormat tag = {.kind = TagFormat::Kind::kTag};
  tag.parts = {text_format(rule.begin), std::move(content), text_format(rule.end)};
  return tag;
}

}  // namespace

std::unique_ptr<Automaton> make_trigger_automaton(std::vector<TriggerRule> rules) {
  check_rules(rules);
  TagFormat format = {.kind = TagFormat::Kind::kTriggered};
  for (size_t i = 0; i < rules.size(); ++i) {
    format.parts.push_back(tag_of(rules[i], i));
  }
  TagCompiler compiler;
  compiler.compile = [&](const TagContent& content) {
    return std::move(rules[std::stoul(content.text)].grammar);
  };
  return make_tag_automaton(make_tag_program(format, compiler));
}

}  // namespace specdec
