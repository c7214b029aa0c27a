#pragma once
#include <string>

#include "grammar/cfg/grammar_text.h"
#include "grammar/cfg/rule_set.h"

namespace specdec {

/// Reads what a Lark grammar writes in quotes and slashes.
class LarkTerminals {
 public:
  /// Borrows all three.
  LarkTerminals(RegexStore& regexes, GrammarText& text, RuleSet& rules)
      : regexes_(regexes), text_(text), rules_(rules) {}

  /// "text", "text"i or "a".."z", from the quotation mark on.
  ExpressionId literal();
  /// /regular expression/flags, from the slash on.
  ExpressionId pattern();

 private:
  ExpressionId range(const std::u32string& first, size_t start);
  ExpressionId ignore_case(const std::u32string& points, size_t start);
  std::string pattern_body();
  GrammarSpan span_from(size_t start) const { return {start, text_.position()}; }

  RegexStore& regexes_;
  GrammarText& text_;
  RuleSet& rules_;
};

}  // namespace specdec
