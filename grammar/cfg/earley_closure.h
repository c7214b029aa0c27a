#pragma once
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "grammar/cfg/earley_automaton.h"

namespace specdec {

/// One Earley set in the making: completions, predictions and their return sets.
class EarleyAutomaton::Closure {
 public:
  explicit Closure(EarleyAutomaton& automaton)
      : automaton_(automaton), grammar_(*automaton.grammar_) {}

  /// Calls the nonterminal with which texts begin.
  void begin(ReturnId returns);
  /// Goes on at a slot of a rule with this return set.
  void enter(SlotId slot, ReturnId returns);
  /// Goes on in the middle of a terminal.
  void add(Item item) { items_.push_back(item); }
  /// Goes on in an embedded automaton, and behind it where it is complete.
  void add_embedded(const Embedded& item);
  /// The set's number.
  StateId finish();

 private:
  /// Where to return to; `returns` may be local: kLocal and the index in calls_.
  using Entry = std::pair<SlotId, uint32_t>;
  /// A nonterminal that is predicted, and where its rules return to.
  struct Call {
    uint32_t nonterminal = 0;
    std::vector<Entry> entries;
    std::vector<uint32_t> tails;  ///< other calls, to whose entries it returns too
    std::vector<ReturnId> outer;  ///< older return sets, whose entries it has too
  };
  static constexpr uint32_t kLocal = 1U << 31;

  void complete_and_predict();
  void visit(SlotId slot, ReturnId returns);
  void expand_calls();
  void call(uint32_t nonterminal, SlotId next, uint32_t returns);
  /// Throws GrammarError when the set has become too large.
  void count_items(size_t more);
  void count_steps(size_t more);

  void join_tails();
  void join_component(const std::vector<uint32_t>& members);
  void add_outer(Call& call, const std::vector<ReturnId>& present);
  void number_calls();
  void number_cycle(std::vector<uint32_t> members);
  std::vector<uint32_t> encode(const Call& call) const;

  EarleyAutomaton& automaton_;
  const ContextFreeGrammar& grammar_;
  std::vector<Item> items_;
  std::vector<Embedded> embedded_;
  bool complete_ = false;
  std::vector<Entry> open_;
  std::unordered_set<uint64_t> seen_;
  std::vector<Call> calls_;
  std::unordered_map<uint32_t, uint32_t> call_of_;  ///< by nonterminal
  std::vector<ReturnId> numbers_;                   ///< by call; kLocal before it has one
  size_t count_ = 0;                                ///< of items
  size_t steps_ = 0;
};

}  // namespace specdec
