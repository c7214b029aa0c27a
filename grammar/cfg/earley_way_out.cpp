// Short texts that end what a state of a context-free grammar has begun: shortest derivations
// (Knuth 1977), of rules first, then of the return sets that a state leads to.
#include <algorithm>
#include <unordered_map>

#include "grammar/cfg/earley_automaton.h"

namespace specdec {
namespace {

constexpr uint64_t kTooLong = uint64_t{1} << 20U;  ///< bytes of a way out, and what is longer

uint64_t add(uint64_t a, uint64_t b) { return std::min(a + b, kTooLong); }

}  // namespace

/// Costs are bytes. What a cost was found with is kept when the cost falls, never when it stays: so
/// no choice leads back to itself.
class EarleyAutomaton::ShortTexts {
 public:
  explicit ShortTexts(EarleyAutomaton& automaton)
      : automaton_(automaton),
        grammar_(*automaton.grammar_),
        rules_(grammar_.nonterminals()),
        slots_(grammar_.slots(), kTooLong) {
    slots_[ContextFreeGrammar::kEnd] = 0;
    for (bool changed = true; changed;) {
      changed = improve();
    }
  }

  std::optional<std::string> after(std::span<const Item> items) {
    uint64_t best = kTooLong;
    const Item* chosen = nullptr;
    for (const Item& item : items) {
      const uint64_t cost =
          add(add(regular(item.rest).size(), slots_[next_of(item.slot)]), solve(item.returns).cost);
      if (cost < best) {
        best = cost;
        chosen = &item;
      }
    }
    if (chosen == nullptr) {
      return std::nullopt;
    }
    std::string text = regular(chosen->rest);
    append(next_of(chosen->slot), text);
    append_returns(chosen->returns, text);
    return text;
  }

 private:
  /// The cheapest way, and the slot that it goes through: kEnd for nothing at all.
  struct Choice {
    uint64_t cost = kTooLong;
    SlotId slot = ContextFreeGrammar::kEnd;
    ReturnId next = 0;  ///< of return sets: where to go on after the slot
  };

  SlotId next_of(SlotId slot) const { return grammar_.slot(slot).next; }

  static bool improve(Choice& choice, const Choice& other) {
    const bool better = other.cost < choice.cost;
    choice = better ? other : choice;
    return better;
  }

  uint64_t cost(const ContextFreeGrammar::Symbol& symbol) {
    return symbol.is_terminal ? regular(grammar_.terminal(symbol.index).regex).size()
                              : rules_[symbol.index].cost;
  }

  /// One round over the grammar; a slot's rest has a smaller number than the slot.
  bool improve() {
    bool changed = false;
    for (SlotId id = 1; id < slots_.size(); ++id) {
      const ContextFreeGrammar::Slot& slot = grammar_.slot(id);
      slots_[id] = add(cost(slot.symbol), slots_[slot.next]);
    }
    for (uint32_t rule = 0; rule < rules_.size(); ++rule) {
      if (grammar_.is_nullable({false, rule})) {
        changed = improve(rules_[rule], {0, ContextFreeGrammar::kEnd, 0}) || changed;
      }
      for (const SlotId head : grammar_.heads(rule)) {
        changed = improve(rules_[rule], {slots_[head], head, 0}) || changed;
      }
    }
    return changed;
  }

  /// A shortest text of a regular language, without control characters if there is one.
  const std::string& regular(RegexId regex) {
    const auto [place, is_new] = regular_.emplace(regex, "");
    if (is_new) {
      RegexStore& store = automaton_.regexes_;
      const CodePoints visible({{' ', '~'}, {0xA0, CodePoints::kLast}});
      const RegexId legible = store.repeat(store.one_of(visible), 0, std::nullopt);
      auto text = store.shortest(store.all_of(regex, legible));
      text = text ? text : store.shortest(regex);
      place->second = to_utf8(text.value_or(U""));
    }
    return place->second;
  }

  Choice solve(ReturnId set) {
    const auto known = returns_.find(set);
    if (known != returns_.end()) {
      return known->second;
    }
    const std::vector<ReturnId> sets = unsolved_from(set);
    for (bool changed = true; changed;) {
      changed = false;
      for (const ReturnId id : sets) {
        changed = improve_set(id) || changed;
      }
    }
    return returns_[set];
  }

  bool improve_set(ReturnId id) {
    Choice& choice = returns_[id];
    bool changed = false;
    const auto pairs = automaton_.returns_[id];
    for (size_t i = 0; i < pairs.size(); i += 2) {
      const bool is_end = pairs[i] == ContextFreeGrammar::kEnd;
      const uint64_t rest = is_end ? 0 : returns_.at(pairs[i + 1]).cost;
      changed = improve(choice, {add(slots_[pairs[i]], rest), pairs[i], pairs[i + 1]}) || changed;
    }
    return changed;
  }

  /// The return sets that lead on from one and have no cost yet, the oldest first.
  std::vector<ReturnId> unsolved_from(ReturnId set) {
    std::vector<ReturnId> sets = {set};
    returns_.emplace(set, Choice());
    for (size_t i = 0; i < sets.size(); ++i) {
      const auto pairs = automaton_.returns_[sets[i]];
      for (size_t pair = 1; pair < pairs.size(); pair += 2) {
        if (returns_.emplace(pairs[pair], Choice()).second) {
          sets.push_back(pairs[pair]);
        }
      }
    }
    std::sort(sets.begin(), sets.end());
    return sets;
  }

  void append(SlotId first, std::string& text) {
    for (std::vector<SlotId> open = {first}; !open.empty();) {
      const SlotId id = open.back();
      open.pop_back();
      if (id == ContextFreeGrammar::kEnd) {
        continue;
      }
      const ContextFreeGrammar::Slot& slot = grammar_.slot(id);
      open.push_back(slot.next);
      if (slot.symbol.is_terminal) {
        text += regular(grammar_.terminal(slot.symbol.index).regex);
      } else {
        open.push_back(rules_[slot.symbol.index].slot);
      }
    }
  }

  void append_returns(ReturnId set, std::string& text) {
    for (Choice choice = solve(set); choice.slot != ContextFreeGrammar::kEnd;
         choice = solve(choice.next)) {
      append(choice.slot, text);
    }
  }

  EarleyAutomaton& automaton_;
  const ContextFreeGrammar& grammar_;
  std::vector<Choice> rules_;    ///< by nonterminal
  std::vector<uint64_t> slots_;  ///< costs
  std::unordered_map<ReturnId, Choice> returns_;
  std::unordered_map<RegexId, std::string> regular_;
};

std::optional<std::string> EarleyAutomaton::way_out(StateId state) {
  std::string way;
  for (uint8_t byte = 0x80; tag(state) > kComplete; ++byte) {  // no dead ends: some byte goes on
    if (const StateId there = next(state, byte); there != kDead) {
      way += static_cast<char>(byte);
      state = there;
      byte = 0x7F;
    }
  }
  if (is_complete(state)) {
    return way;
  }
  if (short_texts_ == nullptr) {
    short_texts_ = std::make_shared<ShortTexts>(*this);
  }
  const auto rest = short_texts_->after(items(state));
  return rest ? std::optional(way + *rest) : std::nullopt;
}

}  // namespace specdec
