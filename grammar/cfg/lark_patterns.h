#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/cfg/grammar_text.h"
#include "grammar/cfg/rule_set.h"

namespace specdec {

/// An expression in Python's syntax with the flags at its beginning, `(?i)`, in a group of its own,
/// `(?i:...)`, so that it can be a part of another one.
std::string scope_flags(std::string_view pattern);

/// The regular expressions of terminals. A terminal with a lazy quantifier or an assertion in it,
/// also in a terminal that it uses, is one expression, put together of its parts: what they match
/// depends on their neighbours.
class LarkPatterns {
 public:
  /// Borrows all three.
  LarkPatterns(RegexStore& regexes, GrammarText& text, RuleSet& rules)
      : regexes_(regexes), text_(text), rules_(rules) {}

  /// An expression in Python's syntax, as a part of a terminal.
  ExpressionId part(std::string pattern, GrammarSpan span);
  /// An expression in Python's syntax that stands alone.
  ExpressionId whole(const std::string& pattern, GrammarSpan span);
  /// Defines the terminals anew that are to be put together; all rules are defined.
  void close();

 private:
  struct Part {
    std::string pattern;
    bool open = false;  ///< depends on its neighbours
  };
  ExpressionId close(RuleId rule);
  void find_open_rules();
  std::string join(ExpressionId id, int depth) const;
  std::string join_all(const std::vector<ExpressionId>& parts, std::string_view between,
                       int depth) const;

  RegexStore& regexes_;
  GrammarText& text_;
  RuleSet& rules_;
  std::unordered_map<ExpressionId, Part> parts_;
  std::vector<bool> open_rules_;
};

}  // namespace specdec
