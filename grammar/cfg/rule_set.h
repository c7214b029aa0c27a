#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/cfg/grammar_text.h"
#include "grammar/regex/regex.h"

namespace specdec {

using RuleId = uint32_t;
using ExpressionId = uint32_t;

/// Where an expression stands in the grammar's text: bytes from `begin` to before `end`.
struct GrammarSpan {
  size_t begin = 0;
  size_t end = 0;
};

/// The right side of a rule, or a part of it.
struct RuleExpression {
  enum class Kind : uint8_t {
    kLiteral,   ///< a: of the literals
    kRegex,     ///< a: RegexId; min: its size, about the characters it took to write
    kRule,      ///< a: RuleId
    kSequence,  ///< children
    kChoice,    ///< children
    kRepeat,    ///< children[0], min to max times
    kShortest,  ///< texts of children[0] that do not begin with a shorter one; must be regular
    kToken,     ///< a: of the tokens
    kEmbedded,  ///< a: of the embedded automata
    kLimited,   ///< children[0], which must be regular, for at most `max` tokens
    kCapture,   ///< children[0], whose text is reported; a: of the captures
  };
  Kind kind = Kind::kSequence;
  uint32_t a = 0;
  uint64_t min = 0;
  uint64_t max = 0;  ///< RuleSet::kUnbounded for any number
  std::vector<ExpressionId> children = {};
  GrammarSpan span = {};
};

/// A grammar as it is written: rules in extended Backus-Naur form over regular languages.
class RuleSet {
 public:
  static constexpr uint64_t kUnbounded = ~uint64_t{0};
  struct Rule {
    std::string name;
    std::optional<ExpressionId> body;
    size_t position = 0;       ///< of its definition, or of its first use
    bool is_terminal = false;  ///< must be a regular language
  };

  /// A token that stands for itself.
  struct NamedToken {
    Token token = 0;
    std::string name;   ///< as written
    bool ends = false;  ///< generation ends after it
  };

  /// How the text of an expression is reported.
  struct CaptureMark {
    std::string name = {};
    bool is_ignored = false;  ///< not at all: captures end before it, where it is their end
    /// Regular parts of it: what is reported, and what stands behind it.
    std::optional<ExpressionId> body = {}, suffix = {};
  };

  ExpressionId literal(std::u32string text, GrammarSpan span);
  ExpressionId regex(RegexId regex, uint64_t size, GrammarSpan span);
  ExpressionId rule(RuleId rule, GrammarSpan span);
  ExpressionId token(NamedToken token, GrammarSpan span);
  /// The texts of an automaton, which are whole characters and never empty.
  ExpressionId embedded(std::shared_ptr<Automaton> automaton, GrammarSpan span);
  /// One part stays what it is; none is the empty text.
  ExpressionId sequence(std::vector<ExpressionId> parts, GrammarSpan span);
  /// One part stays what it is; none is no text at all.
  ExpressionId choice(std::vector<ExpressionId> parts, GrammarSpan span);
  ExpressionId repeat(ExpressionId part, uint64_t min, uint64_t max, GrammarSpan span);
  ExpressionId shortest(ExpressionId part, GrammarSpan span);
  ExpressionId limited(ExpressionId part, uint64_t max_tokens, GrammarSpan span);
  ExpressionId capture(ExpressionId part, CaptureMark mark, GrammarSpan span);
  /// Drops the last part of a sequence.
  void drop_last_part(ExpressionId sequence) { expressions_[sequence].children.pop_back(); }

  /// The rule of that name, which may be defined later.
  RuleId find(std::string_view name, size_t position);
  /// Fails when the rule has been defined before.
  void define(RuleId rule, ExpressionId body, size_t position, const GrammarText& text);
  /// Fails when a rule is used but not defined, naming all such rules.
  void check_defined(const GrammarText& text) const;
  /// The rule that texts begin with; fails when there is none of that name.
  RuleId require(std::string_view name, const GrammarText& text) const;

  /// An expression and all its parts; not those of the rules that it uses.
  std::vector<ExpressionId> within(ExpressionId expression) const;

  const RuleExpression& operator[](ExpressionId id) const { return expressions_[id]; }
  const std::u32string& literal_text(const RuleExpression& expression) const {
    return literals_[expression.a];
  }
  const NamedToken& named_token(const RuleExpression& expression) const {
    return tokens_[expression.a];
  }
  const CaptureMark& mark(const RuleExpression& expression) const { return marks_[expression.a]; }
  const std::shared_ptr<Automaton>& automaton(const RuleExpression& expression) const {
    return automata_[expression.a];
  }
  /// True for tokens, embedded automata and what bounds its tokens, which are no parts of
  /// terminals.
  bool is_whole(ExpressionId id) const {
    return expressions_[id].kind == RuleExpression::Kind::kToken ||
           expressions_[id].kind == RuleExpression::Kind::kEmbedded ||
           expressions_[id].kind == RuleExpression::Kind::kLimited;
  }
  const std::vector<Rule>& rules() const { return rules_; }
  Rule& rule(RuleId id) { return rules_[id]; }
  size_t expressions() const { return expressions_.size(); }

 private:
  ExpressionId add(RuleExpression expression);

  std::vector<RuleExpression> expressions_;
  std::vector<std::u32string> literals_;
  std::vector<NamedToken> tokens_;
  std::vector<std::shared_ptr<Automaton>> automata_;
  std::vector<CaptureMark> marks_;
  std::vector<Rule> rules_;
  std::unordered_map<std::string, RuleId> names_;
};

}  // namespace specdec
