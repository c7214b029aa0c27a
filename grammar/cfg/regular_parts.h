#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/cfg/rule_set.h"

namespace specdec {

/// Which parts of a grammar are regular languages, and which ones. Rules that do not (directly or
/// through others) refer to themselves are, unless they are too large or too deep to be worth it.
class RegularParts {
 public:
  struct Part {
    bool is_regular = false;
    RegexId regex = RegexStore::kNothing;
    uint64_t size = 0;   ///< about the characters it takes to write it without other rules
    uint32_t depth = 0;  ///< of groups in groups
  };

  /// Fails when a terminal is not regular.
  RegularParts(RegexStore& regexes, const RuleSet& rules, const GrammarText& text);

  const Part& of(ExpressionId expression) const { return parts_[expression]; }
  /// Choices and sequences, which are not regular when one of the expressions is not, or when the
  /// whole would be too large.
  Part any_of(std::span<const ExpressionId> expressions);
  Part sequence(std::span<const ExpressionId> expressions);

 private:
  std::vector<std::vector<uint32_t>> references() const;
  void fold_rule(RuleId rule, bool is_recursive, const GrammarText& text);
  void refuse_whole_parts(const RuleSet::Rule& terminal, const GrammarText& text) const;
  void fold(ExpressionId expression);
  Part fold_one(const RuleExpression& expression);
  Part repeat(const RuleExpression& expression);
  Part shortest(const RuleExpression& expression);
  /// Size and depth of a part with these parts; not regular when that is too much.
  Part frame(std::span<const ExpressionId> expressions);
  /// The union of the literals among the expressions, which leave the list.
  RegexId take_literals(std::vector<ExpressionId>& expressions);

  RegexStore& regexes_;
  const RuleSet& rules_;
  std::vector<Part> parts_;       ///< by expression
  std::vector<Part> rule_parts_;  ///< by rule
  uint64_t total_size_ = 0;
};

}  // namespace specdec
