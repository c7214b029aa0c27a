#pragma once
#include <string>

#include "grammar/cfg/grammar_text.h"
#include "grammar/cfg/lark_patterns.h"
#include "grammar/cfg/rule_set.h"

namespace specdec {

/// Reads what a Lark grammar writes in quotes and slashes.
class LarkTerminals {
 public:
  /// Borrows all three.
  LarkTerminals(GrammarText& text, RuleSet& rules, LarkPatterns& patterns)
      : text_(text), rules_(rules), patterns_(patterns) {}

  /// "text", "text"i or "a".."z", from the quotation mark on; blanks may stand around the dots.
  ExpressionId literal();
  /// /regular expression/flags, from the slash on; alone, or as a part of a terminal.
  ExpressionId pattern(bool is_part);

 private:
  void skip_blanks();
  ExpressionId range(const std::u32string& first, size_t start);
  ExpressionId ignore_case(const std::u32string& points, size_t start);
  std::string pattern_body();
  GrammarSpan span_from(size_t start) const { return {start, text_.position()}; }

  GrammarText& text_;
  RuleSet& rules_;
  LarkPatterns& patterns_;
};

}  // namespace specdec
