#include "grammar/cfg/lark_patterns.h"

#include <algorithm>

#include "core/ascii.h"
#include "core/error.h"
#include "grammar/regex/regex_parser.h"

namespace specdec {
namespace {

using PatternKind = RuleExpression::Kind;

constexpr int kMaxDepth = 200;
constexpr size_t kMaxPattern = 200'000;  ///< bytes of an expression that is put together

std::string quoted_pattern(const std::u32string& literal) {
  std::string pattern;
  for (const char32_t c : literal) {
    const bool is_word = is_letter(c) || is_digit(c);
    if (c < ' ' || c > '~') {
      pattern += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    } else {
      pattern += is_word ? "" : "\\";
      pattern += static_cast<char>(c);
    }
  }
  return pattern;
}

std::string count_pattern(const RuleExpression& repeat) {
  const bool unbounded = repeat.max == RuleSet::kUnbounded;
  return fmt::format("{{{},{}}}", repeat.min, unbounded ? "" : std::to_string(repeat.max));
}

}  // namespace

std::string scope_flags(std::string_view pattern) {
  std::string groups;
  size_t count = 0;
  bool verbose = false;
  while (pattern.starts_with("(?")) {
    const size_t end = pattern.find_first_not_of("aiLmsux", 2);
    if (end == 2 || end == pattern.npos || pattern[end] != ')') {
      break;
    }
    const std::string_view flags = pattern.substr(2, end - 2);
    groups += fmt::format("(?{}:", flags);
    verbose = verbose || flags.find('x') != flags.npos;
    ++count;
    pattern.remove_prefix(end + 1);
  }
  const std::string_view comment_end = verbose ? "\n" : "";
  return groups + std::string(pattern) + std::string(comment_end) + std::string(count, ')');
}

ExpressionId LarkPatterns::part(std::string pattern, GrammarSpan span) {
  try {
    const bool open = depends_on_neighbours(pattern);
    const RegexId regex = open ? RegexStore::kNothing : parse_terminal(regexes_, pattern);
    const ExpressionId id = rules_.regex(regex, pattern.size(), span);
    parts_[id] = {std::move(pattern), open};
    return id;
  } catch (const GrammarError& error) {
    text_.fail(span.begin, error.what());
  }
}

ExpressionId LarkPatterns::whole(const std::string& pattern, GrammarSpan span) {
  try {
    return rules_.regex(parse_terminal(regexes_, pattern), pattern.size(), span);
  } catch (const GrammarError& error) {
    text_.fail(span.begin, error.what());
  }
}

void LarkPatterns::close() {
  find_open_rules();
  std::vector<bool> used(open_rules_.size());
  for (const RuleSet::Rule& rule : rules_.rules()) {
    for (const ExpressionId id :
         rule.is_terminal ? std::vector<ExpressionId>() : rules_.within(*rule.body)) {
      if (rules_[id].kind == PatternKind::kRule) {
        used[rules_[id].a] = true;
      }
    }
  }
  std::vector<std::pair<RuleId, ExpressionId>> bodies;
  for (RuleId rule = 0; rule < open_rules_.size(); ++rule) {
    if (open_rules_[rule] && used[rule]) {
      bodies.emplace_back(rule, close(rule));
    }
  }
  for (const auto& [rule, body] : bodies) {
    rules_.rule(rule).body = body;
  }
}

ExpressionId LarkPatterns::close(RuleId rule) {
  const RuleSet::Rule& definition = rules_.rules()[rule];
  const GrammarSpan span = rules_[*definition.body].span;
  if (const auto part = parts_.find(*definition.body); part != parts_.end()) {
    return whole(part->second.pattern, span);
  }
  const std::string pattern = join(*definition.body, 0);
  try {
    return rules_.regex(parse_terminal(regexes_, pattern), pattern.size(), span);
  } catch (const GrammarError& error) {
    text_.fail(span.begin, fmt::format("the terminal '{}', put together from its parts: {}",
                                       definition.name, error.what()));
  }
}

void LarkPatterns::find_open_rules() {
  const size_t count = rules_.rules().size();
  std::vector<std::vector<RuleId>> users(count);
  std::vector<RuleId> found;
  for (RuleId rule = 0; rule < count; ++rule) {
    const RuleSet::Rule& definition = rules_.rules()[rule];
    for (const ExpressionId id :
         definition.is_terminal ? rules_.within(*definition.body) : std::vector<ExpressionId>()) {
      if (rules_[id].kind == PatternKind::kRule) {
        users[rules_[id].a].push_back(rule);
      } else if (const auto part = parts_.find(id); part != parts_.end() && part->second.open) {
        found.push_back(rule);
      }
    }
  }
  open_rules_.assign(count, false);
  while (!found.empty()) {
    const RuleId rule = found.back();
    found.pop_back();
    if (!open_rules_[rule]) {
      open_rules_[rule] = true;
      found.insert(found.end(), users[rule].begin(), users[rule].end());
    }
  }
}

std::string LarkPatterns::join(ExpressionId id, int depth) const {
  const RuleExpression& expression = rules_[id];
  if (depth > kMaxDepth) {
    text_.fail(expression.span.begin,
               "the terminal refers to itself, or terminals are nested too "
               "deep; make it a rule, with a name in small letters");
  }
  switch (expression.kind) {
    case PatternKind::kLiteral:
      return quoted_pattern(rules_.literal_text(expression));
    case PatternKind::kRegex:
      if (const auto part = parts_.find(id); part != parts_.end()) {
        return "(?:" + scope_flags(part->second.pattern) + ")";
      }
      text_.fail(expression.span.begin,
                 "%regex cannot stand in a terminal with lazy quantifiers or assertions; make it a "
                 "terminal of its own, and use both in a rule");
    case PatternKind::kRule:
      return join(*rules_.rules()[expression.a].body, depth + 1);
    case PatternKind::kSequence:
      return join_all(expression.children, "", depth + 1);
    case PatternKind::kChoice:
      return "(?:" + join_all(expression.children, "|", depth + 1) + ")";
    case PatternKind::kRepeat:
      return "(?:" + join(expression.children[0], depth + 1) + ")" + count_pattern(expression);
    case PatternKind::kShortest:
      text_.fail(
          expression.span.begin,
          "a part that is lazy or has a suffix cannot have lazy quantifiers or assertions in "
          "it, or stand in a terminal with such; make it a rule of its own without them");
    case PatternKind::kToken:
    case PatternKind::kEmbedded:
      text_.fail(expression.span.begin,
                 "tokens and %json cannot stand in a terminal with lazy quantifiers or assertions; "
                 "make it a rule, with a name in small letters");
    case PatternKind::kLimited:
    case PatternKind::kCapture:  // of rules only
      text_.fail(expression.span.begin,
                 "what has max_tokens is no part of a terminal; use it in a rule, with a name in "
                 "small letters");
  }
  return "";
}

std::string LarkPatterns::join_all(const std::vector<ExpressionId>& parts, std::string_view between,
                                   int depth) const {
  std::string all;
  for (const ExpressionId part : parts) {
    all += (part == parts.front() ? "" : std::string(between)) + join(part, depth);
    if (all.size() > kMaxPattern) {
      text_.fail(rules_[part].span.begin,
                 fmt::format("a terminal with lazy quantifiers or assertions has more than {} "
                             "characters; make it smaller, or a rule",
                             kMaxPattern));
    }
  }
  return all;
}

}  // namespace specdec
