#include "grammar/cfg/context_free_builder.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "grammar/cfg/end_tokens.h"
#include "grammar/cfg/regular_parts.h"
#include "grammar/cfg/token_limits.h"
#include "grammar/interruption.h"

namespace specdec {
namespace {

using RuleKind = RuleExpression::Kind;
using Symbol = ContextFreeGrammar::Symbol;
using Symbols = std::vector<Symbol>;

class Builder {
 public:
  Builder(RegexStore& regexes, const RuleSet& rules, const GrammarText& text,
          const GrammarLimits& limits)
      : regexes_(regexes),
        rules_(rules),
        text_(text),
        limits_(limits),
        parts_(regexes, rules, text) {}

  std::unique_ptr<ContextFreeGrammar> build(RuleId start) {
    nonterminal(start);
    for (size_t i = 0; i < pending_.size(); ++i) {
      define(nonterminals_.at(pending_[i]), pending_[i]);
    }
    auto grammar = std::make_unique<ContextFreeGrammar>(regexes_, std::move(terminals_), count_,
                                                        std::move(productions_), std::move(marks_));
    if (!grammar->has_texts()) {
      text_.fail(
          rules_.rules()[start].position,
          fmt::format("no text matches the rule '{}': each alternative of it needs itself or "
                      "an empty class; add an alternative that ends",
                      rules_.rules()[start].name));
    }
    check_end_tokens(*grammar, text_);
    return grammar;
  }

 private:
  Symbol nonterminal(RuleId rule) {
    const auto [known, is_new] = nonterminals_.emplace(rule, count_);
    if (is_new) {
      ++count_;
      pending_.push_back(rule);
    }
    return {false, known->second};
  }

  void define(uint32_t nonterminal, RuleId rule) {
    const ExpressionId body = *rules_.rules()[rule].body;
    if (parts_.of(body).is_regular) {
      add(nonterminal, {terminal(parts_.of(body).regex, rules_.rules()[rule].name)});
      return;
    }
    for (Symbols& symbols : alternatives(body)) {
      add(nonterminal, std::move(symbols));
    }
  }

  void add(uint32_t nonterminal, Symbols symbols) {
    Interruption::check();
    symbols_ += symbols.size() + 1;
    if (symbols_ > limits_.max_symbols) {
      throw GrammarError(
          fmt::format("the grammar has more than max_symbols = {} symbols in its productions; use "
                      "smaller counts or fewer rules, or raise the limit",
                      limits_.max_symbols));
    }
    productions_.push_back({nonterminal, std::move(symbols)});
  }

  Symbol fresh() { return {false, count_++}; }

  /// The terminal of a token: one for each token, but for those whose places matter.
  Symbol token(const RuleExpression& expression) {
    const RuleSet::NamedToken& named = rules_.named_token(expression);
    const size_t place = named.ends ? expression.span.begin + 1 : 0;
    const auto [known, is_new] =
        token_ids_.emplace(std::pair(named.token, place), static_cast<uint32_t>(terminals_.size()));
    if (is_new) {
      terminals_.push_back({.label = named.name, .token = named.token});
      terminals_.back().ends_at = named.ends ? std::optional(expression.span.begin) : std::nullopt;
    }
    return {true, known->second};
  }

  Symbol embedded(ExpressionId id) {
    const std::shared_ptr<Automaton>& automaton = rules_.automaton(rules_[id]);
    const auto [known, is_new] =
        embedded_ids_.emplace(automaton.get(), static_cast<uint32_t>(terminals_.size()));
    if (is_new) {
      terminals_.push_back({.label = label(id, id), .automaton = automaton});
    }
    return {true, known->second};
  }

  Symbol limited(ExpressionId id) {
    const RuleExpression& expression = rules_[id];
    const RegexId regex = parts_.of(expression.children[0]).regex;
    const auto max_tokens = static_cast<uint32_t>(expression.max);
    const auto [known, is_new] = limited_ids_.emplace(std::pair(regex, max_tokens),
                                                      static_cast<uint32_t>(terminals_.size()));
    if (is_new) {
      check_token_limit(regexes_, regex, text_, expression.span.begin);
      terminals_.push_back({regex, label(id, id)});
      terminals_.back().max_tokens = max_tokens;
    }
    return {true, known->second};
  }

  Symbol capture(const RuleExpression& expression) {
    const RuleSet::CaptureMark& mark = rules_.mark(expression);
    const Symbol result = fresh();
    for (Symbols& symbols : alternatives(expression.children[0])) {
      add(result.index, std::move(symbols));
    }
    const auto regex_of = [&](std::optional<ExpressionId> part) {
      return part ? parts_.of(*part).regex : RegexStore::kNothing;
    };
    marks_.captures.push_back({.nonterminal = result.index,
                               .name = mark.name,
                               .is_ignored = mark.is_ignored,
                               .body = regex_of(mark.body),
                               .suffix = regex_of(mark.suffix)});
    return result;
  }

  Symbol terminal(RegexId regex, const std::string& label) {
    const auto [known, is_new] =
        terminal_ids_.emplace(regex, static_cast<uint32_t>(terminals_.size()));
    if (is_new) {
      terminals_.push_back({regex, label});
    }
    return {true, known->second};
  }

  std::string label(ExpressionId first, ExpressionId last) const {
    return text_.excerpt(rules_[first].span.begin, rules_[last].span.end);
  }

  /// The right sides of productions for an expression.
  std::vector<Symbols> alternatives(ExpressionId id) {
    const RuleExpression& expression = rules_[id];
    if (parts_.of(id).is_regular || expression.kind != RuleKind::kChoice) {
      Symbols symbols;
      append(id, symbols);
      return {std::move(symbols)};
    }
    std::vector<Symbols> result;
    std::vector<ExpressionId> regular;
    for (const ExpressionId child : expression.children) {
      if (parts_.of(child).is_regular) {
        regular.push_back(child);
        continue;
      }
      for (Symbols& symbols : alternatives(child)) {
        result.push_back(std::move(symbols));
      }
    }
    add_regular_alternatives(regular, result);
    return result;
  }

  void add_regular_alternatives(const std::vector<ExpressionId>& regular,
                                std::vector<Symbols>& result) {
    if (regular.empty()) {
      return;
    }
    const RegularParts::Part whole = parts_.any_of(regular);
    std::string names;
    for (const ExpressionId id : regular) {
      const std::string name = label(id, id);
      if (!whole.is_regular) {
        result.push_back({terminal(parts_.of(id).regex, name)});
      } else if (names.size() + name.size() < kMaxLabel) {
        names += (names.empty() ? "" : " | ") + name;
      } else if (!names.ends_with("...")) {
        names += " | ...";
      }
    }
    if (whole.is_regular) {
      result.push_back({terminal(whole.regex, names)});
    }
  }

  /// An expression as a part of a production's right side. Neighbours that are regular become one
  /// terminal.
  void append(ExpressionId id, Symbols& symbols) {
    std::vector<ExpressionId> run;
    for (const ExpressionId child : flatten(id)) {
      if (parts_.of(child).is_regular) {
        run.push_back(child);
        continue;
      }
      close_run(run, symbols);
      symbols.push_back(symbol(child));
    }
    close_run(run, symbols);
  }

  std::vector<ExpressionId> flatten(ExpressionId id) const {
    std::vector<ExpressionId> result;
    std::vector<ExpressionId> open = {id};
    while (!open.empty()) {
      const ExpressionId top = open.back();
      open.pop_back();
      const std::vector<ExpressionId>& children = rules_[top].children;
      if (rules_[top].kind == RuleKind::kSequence && !parts_.of(top).is_regular) {
        open.insert(open.end(), children.rbegin(), children.rend());
      } else {
        result.push_back(top);
      }
    }
    return result;
  }

  void close_run(std::vector<ExpressionId>& run, Symbols& symbols) {
    if (run.empty()) {
      return;
    }
    const RegularParts::Part whole = run.size() == 1 ? parts_.of(run[0]) : parts_.sequence(run);
    if (whole.is_regular) {
      push_terminal(whole.regex, label(run.front(), run.back()), symbols);
    } else {
      for (const ExpressionId id : run) {
        push_terminal(parts_.of(id).regex, label(id, id), symbols);
      }
    }
    run.clear();
  }

  void push_terminal(RegexId regex, const std::string& name, Symbols& symbols) {
    if (regex != RegexStore::kEmpty) {
      symbols.push_back(terminal(regex, name));
    }
  }

  /// An expression that is not regular, and no sequence, as one symbol.
  Symbol symbol(ExpressionId id) {
    const RuleExpression& expression = rules_[id];
    if (expression.kind == RuleKind::kRule) {
      return nonterminal(expression.a);
    }
    if (expression.kind == RuleKind::kRepeat) {
      return repeat(expression);
    }
    if (expression.kind == RuleKind::kToken) {
      return token(expression);
    }
    if (expression.kind == RuleKind::kEmbedded) {
      return embedded(id);
    }
    if (expression.kind == RuleKind::kLimited) {
      return limited(id);
    }
    if (expression.kind == RuleKind::kCapture) {
      return capture(expression);
    }
    return one_of(alternatives(id));
  }

  Symbol repeat(const RuleExpression& expression) {
    std::vector<Symbols> bodies = alternatives(expression.children[0]);
    const bool unbounded = expression.max == RuleSet::kUnbounded;
    if (unbounded && expression.min <= 1) {
      return repeat_unbounded(bodies, expression.min == 0);
    }
    if (expression.min == 0 && expression.max == 1) {
      bodies.emplace_back();
      return one_of(std::move(bodies));
    }
    count_copies(expression, unbounded ? expression.min : expression.max);
    const Symbol body = one_of(std::move(bodies));
    Symbols copies(expression.min, body);
    if (unbounded) {
      copies.push_back(repeat_unbounded({{body}}, true));
    } else if (expression.max > expression.min) {
      copies.push_back(repeat_up_to(body, expression.max - expression.min));
    }
    return one_of({std::move(copies)});
  }

  Symbol one_of(std::vector<Symbols> bodies) {
    if (bodies.size() == 1 && bodies[0].size() == 1) {
      return bodies[0][0];
    }
    const Symbol result = fresh();
    for (Symbols& symbols : bodies) {
      add(result.index, std::move(symbols));
    }
    return result;
  }

  /// Left recursion: the states of lists stay the same however long the list is.
  Symbol repeat_unbounded(const std::vector<Symbols>& bodies, bool or_empty) {
    const Symbol result = fresh();
    marks_.repeats.push_back(result.index);
    if (or_empty) {
      add(result.index, {});
    }
    for (const Symbols& symbols : bodies) {
      Symbols more = {result};
      more.insert(more.end(), symbols.begin(), symbols.end());
      add(result.index, std::move(more));
      if (!or_empty) {
        add(result.index, symbols);
      }
    }
    return result;
  }

  /// The last copy stands at its rule's end, where calls pile up nothing.
  Symbol repeat_up_to(Symbol body, uint64_t count) {
    Symbol rest = fresh();
    add(rest.index, {});
    add(rest.index, {body});
    for (uint64_t i = 1; i < count; ++i) {
      const Symbol longer = fresh();
      add(longer.index, {});
      add(longer.index, {body, rest});
      rest = longer;
    }
    return rest;
  }

  void count_copies(const RuleExpression& expression, uint64_t copies) {
    unrolled_ += copies;
    if (unrolled_ > limits_.max_unrolled) {
      text_.fail(
          expression.span.begin,
          fmt::format("repetitions of parts that are not regular need more than "
                      "max_unrolled = {} copies; use smaller counts, '*', or raise the limit",
                      limits_.max_unrolled));
    }
  }

  static constexpr size_t kMaxLabel = 100;

  RegexStore& regexes_;
  const RuleSet& rules_;
  const GrammarText& text_;
  const GrammarLimits& limits_;
  RegularParts parts_;
  std::unordered_map<RuleId, uint32_t> nonterminals_;
  std::vector<RuleId> pending_;
  uint32_t count_ = 0;  ///< nonterminals
  std::unordered_map<RegexId, uint32_t> terminal_ids_;
  std::map<std::pair<RegexId, uint32_t>, uint32_t> limited_ids_;
  std::map<std::pair<Token, size_t>, uint32_t> token_ids_;
  std::unordered_map<const Automaton*, uint32_t> embedded_ids_;
  std::vector<ContextFreeGrammar::Terminal> terminals_;
  std::vector<ContextFreeGrammar::Production> productions_;
  ContextFreeGrammar::Marks marks_;
  uint64_t symbols_ = 0;
  uint64_t unrolled_ = 0;
};

}  // namespace

std::unique_ptr<ContextFreeGrammar> make_context_free(RegexStore& regexes, const RuleSet& rules,
                                                      RuleId start, const GrammarText& text,
                                                      const GrammarLimits& limits) {
  return Builder(regexes, rules, text, limits).build(start);
}

}  // namespace specdec
