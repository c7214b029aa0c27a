#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/cfg/context_free.h"
#include "grammar/json/open_string.h"
#include "grammar/regex/code_point_partitions.h"
#include "grammar/regex/regex.h"
#include "grammar/regex/utf8_decoder.h"
#include "grammar/tables/sequence_table.h"

namespace specdec {

/// The texts of a context-free grammar, any one: left and right recursion, empty rules, ambiguity.
///
/// A state is an Earley set (Earley 1970) after scanning: items in the middle of a terminal, each
/// with what may follow of it. Instead of the position where an item's rule began stands what to
/// do when the rule ends: a return set, as in a graph-structured stack (Scott and Johnstone 2010).
/// Equal sets are one, whatever text led there, so states are numbers that never change. A call at
/// a rule's end returns to where the rule itself returns, so that right recursion piles up nothing
/// (what Leo 1991 does for completions); left recursion makes return sets that contain themselves.
/// Where embedded automata have begun, a state is such a set and their states beside it.
class EarleyAutomaton final : public Automaton, public StringStates {
 public:
  /// Borrows the regular languages.
  EarleyAutomaton(RegexStore& regexes, std::unique_ptr<const ContextFreeGrammar> grammar,
                  const GrammarLimits& limits = {});

  StateId start() override;
  /// Throws GrammarError when the grammar is so ambiguous here that limits are exceeded.
  StateId next(StateId state, uint8_t byte) override;
  bool is_complete(StateId state) override;
  std::string explain(StateId state) override;
  std::optional<std::string> completion(StateId state) override;
  std::optional<Token> completion_token(StateId state) override;
  void begin_call() override;
  double used() const override;
  Bytes candidates(StateId state) override;
  std::vector<Token> named_tokens() const override { return named_tokens_; }
  std::vector<Token> tokens(StateId state) override;
  StateId next_token(StateId state, Token token) override;
  StateId end_token(StateId state) override;
  StateId mask_state(StateId state) override;
  std::vector<Capture> captures(std::span<const TextPart> text) override;
  StringStates* string_states() override { return automata_.empty() ? nullptr : this; }
  bool describe(StateId state, OpenString& string) override;
  bool depends_on_string(StateId state) override;

  uint32_t states() const { return states_.size(); }        ///< met so far
  uint32_t return_sets() const { return returns_.size(); }  ///< met so far

 private:
  using SlotId = ContextFreeGrammar::SlotId;
  /// Where to go on when a rule ends: pairs of a slot and, when the rule there ends, the next
  /// return set. A slot of kEnd (only with the return set 0) is the end of the text.
  using ReturnId = uint32_t;
  /// An item in a terminal: what may follow of it, the slot it stands at, the return set of its
  /// rule.
  struct Item {
    RegexId rest = RegexStore::kNothing;
    SlotId slot = ContextFreeGrammar::kEnd;
    ReturnId returns = 0;
    /// Where the terminal bounds its tokens: 0 before its first character, then one more than the
    /// tokens that have ended within it.
    uint32_t tokens = 0;
    auto operator<=>(const Item&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  /// An item in an embedded automaton, whose state is `inner`.
  struct Embedded {
    SlotId slot = ContextFreeGrammar::kEnd;
    ReturnId returns = 0;
    StateId inner = kDead;
    auto operator<=>(const Embedded&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  /// Words in states_: the tag, then for kText and kComplete the items; for kPartial the state
  /// before the character, of the Utf8Decoder its bits so far, bytes to come and bytes in all; for
  /// kUniform the state after the character, whichever bytes come, and how many do; for kEmbedding
  /// a state of one of these kinds, kDead too, and the places in embedded automata.
  enum Tag : uint32_t { kText, kComplete, kPartial, kUniform, kEmbedding };
  /// Transitions of a state over code points, in classes that behave in the same way.
  struct Table {
    static constexpr uint32_t kNone = ~uint32_t{0};
    uint32_t partition = kNone;  ///< kNone: not built
    uint32_t classes = 0;        ///< in classes_: of the partition's ranges
    size_t first_target = 0;     ///< in targets_, by class
  };
  struct Target {
    char32_t point = 0;  ///< one of the class
    StateId state = kUnknown;
  };
  class Closure;
  class Completion;
  struct Way;

  static constexpr StateId kUnknown = ~StateId{0};

  std::vector<Item> items(StateId state) const;
  /// Words of an item in states_.
  size_t item_words() const { return counts_tokens_ ? 4 : 3; }
  Tag tag(StateId state) const { return static_cast<Tag>(states_[state][0]); }
  StateId intern(bool complete, std::vector<Item> items);
  std::vector<Embedded> embedded(StateId state) const;
  /// The state without what is in embedded automata.
  StateId plain(StateId state) const;
  StateId intern(StateId plain, std::vector<Embedded> embedded);
  StateId next_embedded(StateId state, uint8_t byte);
  StateId join(StateId a, StateId b);
  std::vector<OpenString::Part> unite(const std::vector<OpenString::Part>& parts);
  /// Throws GrammarError when a state has too many of them.
  void check_items(size_t count) const;
  const ContextFreeGrammar::Terminal& terminal(SlotId slot) const {
    return grammar_->terminal_at(slot);
  }
  /// The state with other items, made of its own by `change`; false drops an item.
  template <class Change>
  StateId with_items(StateId state, const Change& change);
  Table table(StateId state);
  Table build(StateId state);
  StateId target(const Table& table, uint32_t kind, StateId from);
  StateId after(StateId state, char32_t point);
  StateId next_in_character(StateId state, Utf8Decoder utf8, uint8_t byte);
  StateId partial(StateId state, const Utf8Decoder& utf8);
  void note_parts(ReturnId id, const std::vector<ReturnId>& parts);
  CodePoints next_points(RegexId rest);
  std::vector<std::string> lines(StateId state);
  Way way(StateId state);
  StateId step(StateId state, const TextPart& part);

  RegexStore& regexes_;
  std::unique_ptr<const ContextFreeGrammar> grammar_;
  GrammarLimits limits_;
  SequenceTable states_;
  SequenceTable returns_;
  std::vector<std::vector<ReturnId>> parts_;  ///< by return set: others that it was made of
  SequenceTable cycles_;               ///< return sets that contain one another, before numbering
  std::vector<ReturnId> cycle_bases_;  ///< by cycle: the number of its first return set
  std::vector<Table> tables_;          ///< by state
  std::vector<Target> targets_;
  CodePointPartitions partitions_;
  SequenceTable classes_;  ///< of the ranges of partitions
  std::vector<Token> named_tokens_;
  bool counts_tokens_ = false;        ///< some terminal bounds its tokens
  std::vector<Automaton*> automata_;  ///< embedded ones
  StateId start_ = kUnknown;
  std::shared_ptr<Completion> completion_;  ///< made when first asked for
};

/// The texts of one regular language. Borrows the regular languages.
std::unique_ptr<Automaton> make_regex_automaton(RegexStore& regexes, RegexId regex);

}  // namespace specdec
