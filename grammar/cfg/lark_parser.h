#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "grammar/cfg/grammar_text.h"
#include "grammar/cfg/lark_terminals.h"
#include "grammar/cfg/rule_parts.h"
#include "grammar/cfg/rule_set.h"

namespace specdec {

/// Reads a grammar as make_lark_automaton describes it.
class LarkParser {
 public:
  /// Borrows all three.
  LarkParser(RegexStore& regexes, GrammarText& text, const RuleParts& parts);
  RuleSet parse();
  /// A rule for whole texts, which are those of `name` and may begin with what is ignored.
  RuleId add_whole(RuleSet& rules, std::string_view name) const;

 private:
  /// `name{first, second}: body`, read anew for each list of arguments.
  struct Template {
    std::vector<std::string_view> parameters;
    size_t body = 0;  ///< where it begins
  };
  /// What stands in brackets behind the name of a rule.
  struct Attributes {
    std::vector<std::string_view> names;
    bool lazy = false;
    std::optional<ExpressionId> suffix;  ///< or stop
    uint64_t max_tokens = 0;             ///< 0: any number
    /// Under which name the text is reported; "" = that of the rule.
    std::optional<std::string> capture;
  };
  struct Argument {
    std::string name;  ///< the same for the same argument
    ExpressionId expression = 0;
  };
  /// A use of a template, which is a rule of its own.
  struct Instance {
    RuleId rule = 0;
    std::string_view name;
    std::vector<Argument> arguments;
    size_t position = 0;
  };

  void skip_blanks();
  void skip_lines();
  void skip_space();
  void end_line();
  /// What stands between commas, from the opening bracket on.
  template <class Read>
  void list(std::string_view close, Read&& read) {
    text_.skip(1);
    do {
      skip_lines();
      read();
      skip_lines();
    } while (text_.accept(","));
    if (!text_.accept(close)) {
      text_.fail(fmt::format("expected ',' or '{}', found {}", close, text_.here()));
    }
  }

  void statement();
  void directive();
  void guidance(size_t start);
  void ignore(size_t start);
  void define_ignore();
  void import();
  void declare();
  void check_declared() const;
  void define_common(std::string_view name, std::string_view alias, size_t position);
  void definition();
  void begin_body(std::string_view name);
  void define_rule(std::string_view name, bool is_terminal, size_t position);
  void define_template(std::string_view name, size_t position);
  void define_with_attributes(std::string_view name, bool is_terminal, size_t position);
  void define_lazy(std::string_view name, bool is_terminal, size_t position,
                   const Attributes& read);
  void define_limited(std::string_view name, bool is_terminal, size_t position,
                      const Attributes& read);
  void define_captured(std::string_view name, size_t position, const Attributes& read);
  ExpressionId captured(ExpressionId whole, std::string_view name, const Attributes& read,
                        std::optional<ExpressionId> body = {});
  Attributes attributes();
  void attribute(Attributes& read);
  void check_attribute(const Attributes& read, std::string_view name, size_t start) const;
  uint64_t token_count(bool has_value);
  void capture(Attributes& read, bool has_name, size_t start);
  ExpressionId ending(std::string_view attribute);
  void instantiate(const Instance& instance);
  [[noreturn]] void bad_name(std::string_view name, size_t position) const;

  GrammarSpan span_from(size_t start) const { return {start, end_}; }
  ExpressionId expansions();
  ExpressionId sequence();
  std::optional<ExpressionId> element();
  void counts(uint64_t& min, uint64_t& max);
  bool at_braced_counts() const;
  void braced_counts(uint64_t& min, uint64_t& max);
  std::optional<ExpressionId> atom();
  ExpressionId in_rule(ExpressionId terminal);
  ExpressionId group(std::string_view close);
  /// Letters, digits, '_', and hyphens within; may be empty.
  std::string_view take_name();
  std::optional<ExpressionId> name();
  ExpressionId embedded();
  ExpressionId schema(size_t start);
  ExpressionId token();
  bool ends(ExpressionId id) const;
  void end_at_terminals();
  void set_terminal(RuleId rule);
  ExpressionId use_template(std::string_view name, size_t start);
  Argument argument();

  RegexStore& regexes_;
  GrammarText& text_;
  const RuleParts& parts_;
  RuleSet rules_;
  LarkPatterns patterns_;
  LarkTerminals terminals_;
  RuleId ignore_;  ///< what may stand between terminals
  std::vector<ExpressionId> ignored_;
  std::vector<ExpressionId> terminal_uses_;  ///< names in rules, with what is ignored behind them
  std::map<std::string_view, std::string_view> imported_;  ///< from 'common', by the name here
  std::map<std::string_view, size_t> declared_;            ///< by name: where
  GrammarSpan ignore_span_;
  bool in_terminal_ = false;
  bool has_captures_ = false;
  size_t end_ = 0;  ///< behind the last part that was read

  std::map<std::string_view, Template> templates_;
  std::map<std::string_view, Argument> arguments_;  ///< of the template that is read
  bool defines_template_ = false;                   ///< its parameters stand for nothing yet
  std::vector<Instance> instances_;
  std::set<RuleId> instantiated_;
  std::map<size_t, ExpressionId> schemas_;  ///< by place: templates are read again
};

}  // namespace specdec
