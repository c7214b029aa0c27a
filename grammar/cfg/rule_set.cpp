#include "grammar/cfg/rule_set.h"

#include "core/error.h"

namespace specdec {

ExpressionId RuleSet::add(RuleExpression expression) {
  expressions_.push_back(std::move(expression));
  return static_cast<ExpressionId>(expressions_.size() - 1);
}

ExpressionId RuleSet::literal(std::u32string text, GrammarSpan span) {
  literals_.push_back(std::move(text));
  return add({.kind = RuleExpression::Kind::kLiteral,
              .a = static_cast<uint32_t>(literals_.size() - 1),
              .span = span});
}

ExpressionId RuleSet::regex(RegexId regex, uint64_t size, GrammarSpan span) {
  return add({.kind = RuleExpression::Kind::kRegex, .a = regex, .min = size, .span = span});
}

ExpressionId RuleSet::token(NamedToken token, GrammarSpan span) {
  tokens_.push_back(std::move(token));
  return add({.kind = RuleExpression::Kind::kToken,
              .a = static_cast<uint32_t>(tokens_.size() - 1),
              .span = span});
}

ExpressionId RuleSet::embedded(std::shared_ptr<Automaton> automaton, GrammarSpan span) {
  automata_.push_back(std::move(automaton));
  return add({.kind = RuleExpression::Kind::kEmbedded,
              .a = static_cast<uint32_t>(automata_.size() - 1),
              .span = span});
}

ExpressionId RuleSet::rule(RuleId rule, GrammarSpan span) {
  return add({.kind = RuleExpression::Kind::kRule, .a = rule, .span = span});
}

ExpressionId RuleSet::sequence(std::vector<ExpressionId> parts, GrammarSpan span) {
  if (parts.size() == 1) {
    return parts[0];
  }
  return add({.kind = RuleExpression::Kind::kSequence, .children = std::move(parts), .span = span});
}

ExpressionId RuleSet::choice(std::vector<ExpressionId> parts, GrammarSpan span) {
  if (parts.size() == 1) {
    return parts[0];
  }
  return add({.kind = RuleExpression::Kind::kChoice, .children = std::move(parts), .span = span});
}

ExpressionId RuleSet::repeat(ExpressionId part, uint64_t min, uint64_t max, GrammarSpan span) {
  return add({.kind = RuleExpression::Kind::kRepeat,
              .min = min,
              .max = max,
              .children = {part},
              .span = span});
}

ExpressionId RuleSet::shortest(ExpressionId part, GrammarSpan span) {
  return add({.kind = RuleExpression::Kind::kShortest, .children = {part}, .span = span});
}

ExpressionId RuleSet::limited(ExpressionId part, uint64_t max_tokens, GrammarSpan span) {
  return add({.kind = RuleExpression::Kind::kLimited,
              .max = max_tokens,
              .children = {part},
              .span = span});
}

ExpressionId RuleSet::capture(ExpressionId part, CaptureMark mark, GrammarSpan span) {
  marks_.push_back(std::move(mark));
  return add({.kind = RuleExpression::Kind::kCapture,
              .a = static_cast<uint32_t>(marks_.size() - 1),
              .children = {part},
              .span = span});
}

std::vector<ExpressionId> RuleSet::within(ExpressionId expression) const {
  std::vector<ExpressionId> all = {expression};
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<ExpressionId>& children = expressions_[all[i]].children;
    all.insert(all.end(), children.begin(), children.end());
  }
  return all;
}

RuleId RuleSet::find(std::string_view name, size_t position) {
  const auto [known, is_new] =
      names_.emplace(std::string(name), static_cast<RuleId>(rules_.size()));
  if (is_new) {
    rules_.push_back({.name = std::string(name), .body = std::nullopt, .position = position});
  }
  return known->second;
}

void RuleSet::define(RuleId rule, ExpressionId body, size_t position, const GrammarText& text) {
  if (rules_[rule].body) {
    text.fail(position, fmt::format("'{}' is defined twice; join the two with '|', or rename one",
                                    rules_[rule].name));
  }
  rules_[rule].body = body;
  rules_[rule].position = position;
}

void RuleSet::check_defined(const GrammarText& text) const {
  const Rule* first = nullptr;
  std::string names;
  for (const Rule& rule : rules_) {
    if (!rule.body) {
      first = first == nullptr ? &rule : first;
      names += (names.empty() ? "'" : ", '") + rule.name + "'";
    }
  }
  if (first != nullptr) {
    text.fail(first->position, fmt::format("{} used but not defined; add a definition or correct "
                                           "the name",
                                           names));
  }
}

RuleId RuleSet::require(std::string_view name, const GrammarText& text) const {
  const auto found = names_.find(std::string(name));
  if (found == names_.end() || !rules_[found->second].body) {
    text.fail(0, fmt::format("there is no rule '{}', with which all texts begin; add it", name));
  }
  return found->second;
}

}  // namespace specdec
