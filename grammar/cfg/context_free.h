#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "grammar/cfg/rule_set.h"
#include "grammar/tables/sequence_table.h"

namespace specdec {

/// A context-free grammar over regular terminals, in plain productions: what an Earley parser needs
/// to know. Everything in it is productive: a text can be finished from every place in it.
class ContextFreeGrammar {
 public:
  /// The rest of a production from some symbol on; equal rests are one. kEnd is the empty rest.
  using SlotId = uint32_t;
  static constexpr SlotId kEnd = 0;

  struct Symbol {
    bool is_terminal = false;
    uint32_t index = 0;
  };
  struct Slot {
    Symbol symbol;
    SlotId next = kEnd;
  };
  /// A regular language, a token, or the texts of an automaton, which are never empty.
  struct Terminal {
    RegexId regex = RegexStore::kNothing;
    std::string label;                               ///< as written in the grammar, for people
    std::optional<Token> token = {};                 ///< then `regex` is nothing
    std::shared_ptr<Automaton> automaton = nullptr;  ///< likewise
    std::optional<size_t> ends_at = {};  ///< of a token after which generation ends: its place
    /// Number of tokens that end within the terminal after which it ends; 0: any. With a number
    /// every beginning of a text of `regex` is a text of it, but for the empty one.
    uint32_t max_tokens = 0;
  };
  struct Production {
    uint32_t nonterminal = 0;
    std::vector<Symbol> symbols;
  };

  /// How the texts of a nonterminal are reported; see RuleSet::CaptureMark.
  struct Mark {
    uint32_t nonterminal = 0;
    std::string name = {};
    bool is_ignored = false;
    RegexId body = RegexStore::kNothing;
    RegexId suffix = RegexStore::kNothing;  ///< kNothing: there is none
  };
  /// What a parse needs besides: nonterminals that are reported, and left-recursive ones that
  /// repeat the rest of their productions.
  struct Marks {
    std::vector<Mark> captures;
    std::vector<uint32_t> repeats;
  };

  /// Texts begin with nonterminal 0. Productions that no text can come of are left out.
  ContextFreeGrammar(RegexStore& regexes, std::vector<Terminal> terminals, uint32_t nonterminals,
                     std::vector<Production> productions, Marks marks = {});

  /// False when the grammar has no text at all.
  bool has_texts() const { return productive_[0]; }
  bool is_nullable(Symbol symbol) const {
    return symbol.is_terminal ? nullable_terminals_[symbol.index] : nullable_[symbol.index];
  }
  const Slot& slot(SlotId id) const { return slots_[id]; }
  const Terminal& terminal(uint32_t index) const { return terminals_[index]; }
  /// The one that a slot stands at, which is no nonterminal.
  const Terminal& terminal_at(SlotId slot) const { return terminals_[slots_[slot].symbol.index]; }
  const std::vector<Terminal>& terminals() const { return terminals_; }
  /// Slots at which a text of a nonterminal may begin: those of its productions, and those after
  /// symbols of them that may be empty (Aycock and Horspool 2002). Never kEnd.
  std::span<const uint32_t> heads(uint32_t nonterminal) const { return heads_[nonterminal]; }
  const Marks& marks() const { return marks_; }
  /// Where the productions of a nonterminal begin, kEnd for an empty one: only with captures.
  std::span<const uint32_t> bodies(uint32_t nonterminal) const { return bodies_[nonterminal]; }
  uint32_t nonterminals() const { return static_cast<uint32_t>(nullable_.size()); }
  size_t slots() const { return slots_.size(); }

 private:
  /// Nonterminals with a production all of whose symbols hold; terminals hold as given.
  std::vector<bool> closure(const std::vector<bool>& terminals,
                            const std::vector<Production>& productions) const;
  SlotId slot_of(const std::vector<Symbol>& symbols);
  void find_heads(const std::vector<Production>& productions);

  std::vector<Terminal> terminals_;
  std::vector<bool> nullable_terminals_;
  std::vector<bool> productive_;  ///< by nonterminal
  std::vector<bool> nullable_;
  std::vector<Slot> slots_;
  SequenceTable slot_ids_;  ///< (symbol, next); the same numbers as slots_
  SequenceTable heads_;     ///< by nonterminal
  SequenceTable bodies_;    ///< likewise
  Marks marks_;
};

}  // namespace specdec
