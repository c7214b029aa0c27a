#include "grammar/cfg/earley_completion.h"

#include <algorithm>

namespace specdec {

EarleyAutomaton::Completion::Completion(EarleyAutomaton& automaton)
    : automaton_(automaton),
      grammar_(*automaton.grammar_),
      rules_(grammar_.nonterminals()),
      slots_(grammar_.slots(), kTooLong) {
  slots_[ContextFreeGrammar::kEnd] = 0;
  for (bool changed = true; changed;) {
    changed = improve();
  }
}

uint64_t EarleyAutomaton::Completion::cost_behind(SlotId slot, ReturnId returns) {
  return sum(slots_[next_of(slot)], solve(returns).cost);
}

void EarleyAutomaton::Completion::after(const std::vector<Item>& items,
                                        const std::vector<Embedded>& embedded, Way& way) {
  Begun best;
  const auto consider = [&](const Begun& begun) { best = begun.cost < best.cost ? begun : best; };
  for (const Item& item : items) {
    const uint64_t rest = grammar_.terminal_at(item.slot).token ? 1 : regular(item.rest).size();
    consider({sum(rest, cost_behind(item.slot, item.returns)), &item, nullptr});
  }
  for (const Embedded& item : embedded) {
    const auto rest = grammar_.terminal_at(item.slot).automaton->completion(item.inner);
    consider({sum(rest ? rest->size() : kUnknownCost, cost_behind(item.slot, item.returns)),
              nullptr, &item});
  }
  if (best.item != nullptr) {
    append_terminal(grammar_.terminal_at(best.item->slot), best.item->rest, way);
    append(next_of(best.item->slot), way);
    append_returns(best.item->returns, way);
  } else if (best.embedded != nullptr) {
    append_embedded(*grammar_.terminal_at(best.embedded->slot).automaton, best.embedded->inner,
                    way);
    append(next_of(best.embedded->slot), way);
    append_returns(best.embedded->returns, way);
  }
}

bool EarleyAutomaton::Completion::improve(Choice& choice, const Choice& other) {
  const bool better = other.cost < choice.cost;
  choice = better ? other : choice;
  return better;
}

uint64_t EarleyAutomaton::Completion::cost(const ContextFreeGrammar::Symbol& symbol) {
  if (!symbol.is_terminal) {
    return rules_[symbol.index].cost;
  }
  const ContextFreeGrammar::Terminal& terminal = grammar_.terminal(symbol.index);
  if (terminal.token) {
    return 1;
  }
  if (terminal.automaton != nullptr) {
    const auto known = embedded_costs_.find(symbol.index);
    if (known != embedded_costs_.end()) {
      return known->second;
    }
    const auto way = terminal.automaton->completion(terminal.automaton->start());
    return embedded_costs_[symbol.index] = way ? way->size() : kUnknownCost;
  }
  return regular(terminal.regex).size();
}

bool EarleyAutomaton::Completion::improve() {
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

const std::string& EarleyAutomaton::Completion::regular(RegexId regex) {
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

EarleyAutomaton::Completion::Choice EarleyAutomaton::Completion::solve(ReturnId set) {
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

bool EarleyAutomaton::Completion::improve_set(ReturnId id) {
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

std::vector<EarleyAutomaton::ReturnId> EarleyAutomaton::Completion::unsolved_from(ReturnId set) {
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

void EarleyAutomaton::Completion::append_terminal(const ContextFreeGrammar::Terminal& terminal,
                                                  RegexId rest, Way& way) {
  if (terminal.automaton != nullptr) {
    append_embedded(*terminal.automaton, terminal.automaton->start(), way);
  } else if (terminal.token) {
    way.token = way.bytes.empty() ? terminal.token : std::nullopt;
    way.cut = true;
  } else {
    way.bytes += regular(rest);
  }
}

void EarleyAutomaton::Completion::append_embedded(Automaton& automaton, StateId from, Way& way) {
  const std::string bytes = automaton.completion(from).value_or("");
  for (const char byte : bytes) {
    from = automaton.next(from, static_cast<uint8_t>(byte));
  }
  way.bytes += bytes;
  way.cut = !automaton.is_complete(from);
}

void EarleyAutomaton::Completion::append(SlotId first, Way& way) {
  for (std::vector<SlotId> open = {first}; !open.empty() && !way.cut;) {
    const SlotId id = open.back();
    open.pop_back();
    if (id == ContextFreeGrammar::kEnd) {
      continue;
    }
    const ContextFreeGrammar::Slot& slot = grammar_.slot(id);
    open.push_back(slot.next);
    if (slot.symbol.is_terminal) {
      const ContextFreeGrammar::Terminal& terminal = grammar_.terminal(slot.symbol.index);
      append_terminal(terminal, terminal.regex, way);
    } else {
      open.push_back(rules_[slot.symbol.index].slot);
    }
  }
}

void EarleyAutomaton::Completion::append_returns(ReturnId set, Way& way) {
  for (Choice choice = solve(set); choice.slot != ContextFreeGrammar::kEnd && !way.cut;
       choice = solve(choice.next)) {
    append(choice.slot, way);
  }
}

}  // namespace specdec
