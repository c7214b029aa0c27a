#include "grammar/cfg/earley_way_out.h"

#include <algorithm>

namespace specdec {

EarleyAutomaton::WayOut::WayOut(EarleyAutomaton& automaton)
    : automaton_(automaton),
      grammar_(*automaton.grammar_),
      rules_(grammar_.nonterminals()),
      slots_(grammar_.slots(), kTooLong) {
  slots_[ContextFreeGrammar::kEnd] = 0;
  for (bool changed = true; changed;) {
    changed = improve();
  }
}

std::optional<std::string> EarleyAutomaton::WayOut::after(std::span<const Item> items) {
  uint64_t best = kTooLong;
  const Item* chosen = nullptr;
  for (const Item& item : items) {
    const uint64_t cost =
        sum(sum(regular(item.rest).size(), slots_[next_of(item.slot)]), solve(item.returns).cost);
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

bool EarleyAutomaton::WayOut::improve(Choice& choice, const Choice& other) {
  const bool better = other.cost < choice.cost;
  choice = better ? other : choice;
  return better;
}

uint64_t EarleyAutomaton::WayOut::cost(const ContextFreeGrammar::Symbol& symbol) {
  return symbol.is_terminal ? regular(grammar_.terminal(symbol.index).regex).size()
                            : rules_[symbol.index].cost;
}

bool EarleyAutomaton::WayOut::improve() {
  bool changed = false;
  for (SlotId id = 1; id < slots_.size(); ++id) {
    const ContextFreeGrammar::Slot& slot = grammar_.slot(id);
    slots_[id] = sum(cost(slot.symbol), slots_[slot.next]);
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

const std::string& EarleyAutomaton::WayOut::regular(RegexId regex) {
  const auto [known, is_new] = regular_.emplace(regex, "");
  if (is_new) {
    RegexStore& store = automaton_.regexes_;
    const CodePoints visible({{' ', '~'}, {0xA0, CodePoints::kLast}});
    const RegexId legible = store.repeat(store.one_of(visible), 0, std::nullopt);
    auto text = store.shortest(store.all_of(regex, legible));
    text = text ? text : store.shortest(regex);
    known->second = to_utf8(text.value_or(U""));
  }
  return known->second;
}

EarleyAutomaton::WayOut::Choice EarleyAutomaton::WayOut::solve(ReturnId set) {
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

bool EarleyAutomaton::WayOut::improve_set(ReturnId id) {
  Choice& choice = returns_[id];
  bool changed = false;
  const auto pairs = automaton_.returns_[id];
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const bool is_end = pairs[i] == ContextFreeGrammar::kEnd;
    const uint64_t rest = is_end ? 0 : returns_.at(pairs[i + 1]).cost;
    changed = improve(choice, {sum(slots_[pairs[i]], rest), pairs[i], pairs[i + 1]}) || changed;
  }
  return changed;
}

std::vector<EarleyAutomaton::ReturnId> EarleyAutomaton::WayOut::unsolved_from(ReturnId set) {
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

void EarleyAutomaton::WayOut::append(SlotId first, std::string& text) {
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

void EarleyAutomaton::WayOut::append_returns(ReturnId set, std::string& text) {
  for (Choice choice = solve(set); choice.slot != ContextFreeGrammar::kEnd;
       choice = solve(choice.next)) {
    append(choice.slot, text);
  }
}

}  // namespace specdec
