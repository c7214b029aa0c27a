#include "grammar/cfg/regular_parts.h"

#include <algorithm>

#include "core/error.h"
#include "grammar/tables/components.h"

namespace specdec {
namespace {

using RuleKind = RuleExpression::Kind;

constexpr uint64_t kMaxSize = 200'000;         ///< of one regular part
constexpr uint64_t kMaxTotalSize = 4'000'000;  ///< of all that are built
constexpr uint32_t kMaxDerivativeDepth = 300;  ///< derivatives recurse that deep

/// Why no token, no embedded grammar and nothing that bounds its tokens may be a part of that
/// terminal.
std::string why_no_whole(const RuleSet& rules, const RuleSet::Rule& terminal,
                         const RuleExpression& part) {
  if (part.kind == RuleKind::kLimited) {
    return "what has max_tokens is no part of a terminal, as it counts tokens, not characters; use "
           "it in a rule, with a name in small letters";
  }
  if (terminal.name.starts_with("%ignore")) {
    return "tokens and %json cannot be ignored, only text can; name them in the rules where they "
           "may stand";
  }
  if (rules[*terminal.body].kind == RuleKind::kShortest) {
    return "tokens and %json cannot be lazy or a suffix, only text can; name them in a rule "
           "that uses this one";
  }
  return "a terminal is one expression over characters: tokens and %json cannot be a part of it; "
         "make it a rule, with a name in small letters";
}

}  // namespace

RegularParts::RegularParts(RegexStore& regexes, const RuleSet& rules, const GrammarText& text)
    : regexes_(regexes),
      rules_(rules),
      parts_(rules.expressions()),
      rule_parts_(rules.rules().size()) {
  const std::vector<std::vector<uint32_t>> edges = references();
  for (const std::vector<uint32_t>& component : components_of(edges)) {
    const auto& own = edges[component[0]];
    const bool is_recursive =
        component.size() > 1 || std::find(own.begin(), own.end(), component[0]) != own.end();
    for (const RuleId rule : component) {
      fold_rule(rule, is_recursive, text);
    }
  }
}

std::vector<std::vector<uint32_t>> RegularParts::references() const {
  std::vector<std::vector<uint32_t>> edges(rules_.rules().size());
  for (RuleId rule = 0; rule < edges.size(); ++rule) {
    std::vector<ExpressionId> open = {*rules_.rules()[rule].body};
    while (!open.empty()) {
      const RuleExpression& expression = rules_[open.back()];
      open.pop_back();
      if (expression.kind == RuleKind::kRule) {
        edges[rule].push_back(expression.a);
      }
      open.insert(open.end(), expression.children.begin(), expression.children.end());
    }
  }
  return edges;
}

void RegularParts::fold_rule(RuleId rule, bool is_recursive, const GrammarText& text) {
  const RuleSet::Rule& definition = rules_.rules()[rule];
  fold(*definition.body);
  rule_parts_[rule] = is_recursive ? Part() : parts_[*definition.body];
  if (!definition.is_terminal || rule_parts_[rule].is_regular) {
    return;
  }
  refuse_whole_parts(definition, text);
  text.fail(definition.position,
            is_recursive ? fmt::format("the terminal '{}' refers to itself; make it a rule, with a "
                                       "name in small letters",
                                       definition.name)
                         : fmt::format("the terminal '{}' is too large (above {} characters, or "
                                       "groups {} deep); make it a rule, with a name in small "
                                       "letters",
                                       definition.name, kMaxSize, kMaxDerivativeDepth));
}

/// Refuses what is no part of a terminal, also behind a name in capital letters.
void RegularParts::refuse_whole_parts(const RuleSet::Rule& terminal,
                                      const GrammarText& text) const {
  for (const ExpressionId id : rules_.within(*terminal.body)) {
    const bool is_name = rules_[id].kind == RuleKind::kRule;
    const ExpressionId part = is_name ? *rules_.rules()[rules_[id].a].body : id;
    if (rules_.is_whole(part)) {
      text.fail(rules_[id].span.begin, why_no_whole(rules_, terminal, rules_[part]));
    }
  }
}

void RegularParts::fold(ExpressionId expression) {
  for (const ExpressionId child : rules_[expression].children) {
    fold(child);
  }
  parts_[expression] = fold_one(rules_[expression]);
}

RegularParts::Part RegularParts::fold_one(const RuleExpression& expression) {
  switch (expression.kind) {
    case RuleKind::kLiteral: {
      const std::u32string& literal = rules_.literal_text(expression);
      return {true, regexes_.literal(literal), literal.size(), 0};
    }
    case RuleKind::kRegex:
      return {true, expression.a, expression.min, 0};
    case RuleKind::kRule:
      return rule_parts_[expression.a];
    case RuleKind::kSequence:
      return sequence(expression.children);
    case RuleKind::kChoice:
      return any_of(expression.children);
    case RuleKind::kRepeat:
      return repeat(expression);
    case RuleKind::kShortest:
      return shortest(expression);
    case RuleKind::kToken:
    case RuleKind::kEmbedded:
    case RuleKind::kLimited:
    case RuleKind::kCapture:
      break;
  }
  return {};
}

RegularParts::Part RegularParts::frame(std::span<const ExpressionId> expressions) {
  Part whole = {.is_regular = true, .depth = 1};
  for (const ExpressionId id : expressions) {
    const Part& part = parts_[id];
    whole.is_regular = whole.is_regular && part.is_regular;
    whole.size = std::min(whole.size + part.size, kMaxTotalSize);
    whole.depth = std::max(whole.depth, part.depth + 1);
  }
  const bool fits = whole.size <= kMaxSize && whole.depth <= kMaxDerivativeDepth &&
                    total_size_ + whole.size <= kMaxTotalSize;
  if (!whole.is_regular || !fits) {
    return {};
  }
  total_size_ += whole.size;
  return whole;
}

RegularParts::Part RegularParts::repeat(const RuleExpression& expression) {
  Part whole = frame(expression.children);
  if (whole.is_regular) {
    const bool bounded = expression.max != RuleSet::kUnbounded;
    whole.regex = regexes_.repeat(parts_[expression.children[0]].regex, expression.min,
                                  bounded ? std::optional(expression.max) : std::nullopt);
  }
  return whole;
}

RegularParts::Part RegularParts::shortest(const RuleExpression& expression) {
  Part whole = frame(expression.children);
  if (whole.is_regular) {
    const RegexId all = parts_[expression.children[0]].regex;
    const RegexId some = regexes_.repeat(regexes_.one_of(CodePoints::all()), 1, std::nullopt);
    whole.regex = regexes_.all_of(all, regexes_.complement(regexes_.concat(all, some)));
  }
  return whole;
}

RegularParts::Part RegularParts::sequence(std::span<const ExpressionId> expressions) {
  Part whole = frame(expressions);
  if (whole.is_regular) {
    std::vector<RegexId> parts;
    for (const ExpressionId id : expressions) {
      parts.push_back(parts_[id].regex);
    }
    whole.regex = regexes_.concat(parts);
  }
  return whole;
}

RegularParts::Part RegularParts::any_of(std::span<const ExpressionId> expressions) {
  Part whole = frame(expressions);
  if (whole.is_regular) {
    std::vector<ExpressionId> others(expressions.begin(), expressions.end());
    std::vector<RegexId> parts = {take_literals(others)};
    for (const ExpressionId id : others) {
      parts.push_back(parts_[id].regex);
    }
    whole.regex = regexes_.any_of(parts);
  }
  return whole;
}

RegexId RegularParts::take_literals(std::vector<ExpressionId>& expressions) {
  std::vector<std::u32string> words;
  std::vector<ExpressionId> others;
  for (const ExpressionId id : expressions) {
    if (rules_[id].kind == RuleKind::kLiteral) {
      words.push_back(rules_.literal_text(rules_[id]));
    } else {
      others.push_back(id);
    }
  }
  expressions = std::move(others);
  return words.empty() ? RegexStore::kNothing : regexes_.words(std::move(words));
}

}  // namespace specdec
