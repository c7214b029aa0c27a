#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/cfg/earley_automaton.h"

namespace specdec {

/// Bytes, up to the first token or to where an embedded automaton knows no more; or that token.
struct EarleyAutomaton::Way {
  std::string bytes;
  std::optional<Token> token;
  bool cut = false;  ///< more would have to follow
};

/// Short texts that end what a state of a context-free grammar has begun: shortest derivations
/// (Knuth 1977), of rules first, then of the return sets that a state leads to. Costs are bytes.
/// What a cost was found with is kept when the cost falls, never when it stays: so no choice leads
/// back to itself.
class EarleyAutomaton::Completion {
 public:
  explicit Completion(EarleyAutomaton& automaton);
  /// Adds what ends one of these, and all that it is in; nothing when that is too long.
  void after(const std::vector<Item>& items, const std::vector<Embedded>& embedded, Way& way);

 private:
  /// Bytes of a completion, and what is longer.
  static constexpr uint64_t kTooLong = uint64_t{1} << 20U;
  /// Cost of an embedded text with no known way: any other is better, but some may stand in a row.
  static constexpr uint64_t kUnknownCost = kTooLong / 4;

  /// What is begun, and its rest.
  struct Begun {
    uint64_t cost = kTooLong;
    const Item* item = nullptr;
    const Embedded* embedded = nullptr;
  };
  /// The cheapest way, and the slot that it goes through: kEnd for nothing at all.
  struct Choice {
    uint64_t cost = kTooLong;
    SlotId slot = ContextFreeGrammar::kEnd;
    ReturnId next = 0;  ///< of return sets: where to go on after the slot
  };

  static uint64_t sum(uint64_t a, uint64_t b) { return std::min(a + b, kTooLong); }
  SlotId next_of(SlotId slot) const { return grammar_.slot(slot).next; }

  static bool improve(Choice& choice, const Choice& other);
  uint64_t cost(const ContextFreeGrammar::Symbol& symbol);

  /// One round over the grammar; a slot's rest has a smaller number than the slot.
  bool improve();

  /// A shortest text of a regular language, without control characters if there is one.
  const std::string& regular(RegexId regex);
  Choice solve(ReturnId set);
  bool improve_set(ReturnId id);

  /// The return sets that lead on from one and have no cost yet, the oldest first.
  std::vector<ReturnId> unsolved_from(ReturnId set);
  uint64_t cost_behind(SlotId slot, ReturnId returns);
  void append_terminal(const ContextFreeGrammar::Terminal& terminal, RegexId rest, Way& way);
  static void append_embedded(Automaton& automaton, StateId from, Way& way);
  void append(SlotId first, Way& way);
  void append_returns(ReturnId set, Way& way);

  EarleyAutomaton& automaton_;
  const ContextFreeGrammar& grammar_;
  std::vector<Choice> rules_;    ///< by nonterminal
  std::vector<uint64_t> slots_;  ///< costs
  std::unordered_map<ReturnId, Choice> returns_;
  std::unordered_map<RegexId, std::string> regular_;
  std::unordered_map<uint32_t, uint64_t> embedded_costs_;  ///< by terminal, of whole texts
};

}  // namespace specdec
