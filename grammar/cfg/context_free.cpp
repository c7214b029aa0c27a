#include "grammar/cfg/context_free.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {
namespace {

using Symbol = ContextFreeGrammar::Symbol;
using Production = ContextFreeGrammar::Production;

}  // namespace

ContextFreeGrammar::ContextFreeGrammar(RegexStore& regexes, std::vector<Terminal> terminals,
                                       uint32_t nonterminals, std::vector<Production> productions,
                                       Marks marks)
    : terminals_(std::move(terminals)),
      nullable_(nonterminals),
      slots_(1),
      marks_(std::move(marks)) {
  SPECDEC_CHECK(nonterminals > 0, "a grammar needs a nonterminal to begin with");
  slot_ids_.intern({});
  std::vector<bool> live;
  for (const Terminal& terminal : terminals_) {
    live.push_back(terminal.token || terminal.automaton != nullptr ||
                   !regexes.is_nothing(terminal.regex));
    nullable_terminals_.push_back(regexes.matches_empty(terminal.regex));
  }
  productive_ = closure(live, productions);
  const auto is_dead = [&](Symbol symbol) {
    return !(symbol.is_terminal ? live[symbol.index] : productive_[symbol.index]);
  };
  std::erase_if(productions, [&](const Production& production) {
    return std::any_of(production.symbols.begin(), production.symbols.end(), is_dead);
  });
  nullable_ = closure(nullable_terminals_, productions);
  find_heads(productions);
}

std::vector<bool> ContextFreeGrammar::closure(const std::vector<bool>& terminals,
                                              const std::vector<Production>& productions) const {
  std::vector<bool> holds(nullable_.size());
  std::vector<std::vector<uint32_t>> users(holds.size());  // productions; once for each symbol
  std::vector<size_t> missing(productions.size());
  std::vector<uint32_t> open;
  for (uint32_t i = 0; i < productions.size(); ++i) {
    for (const Symbol symbol : productions[i].symbols) {
      missing[i] += symbol.is_terminal && terminals[symbol.index] ? 0 : 1;
      if (!symbol.is_terminal) {
        users[symbol.index].push_back(i);
      }
    }
    if (missing[i] == 0) {
      open.push_back(i);
    }
  }
  while (!open.empty()) {
    const uint32_t nonterminal = productions[open.back()].nonterminal;
    open.pop_back();
    if (holds[nonterminal]) {
      continue;
    }
    holds[nonterminal] = true;
    for (const uint32_t user : users[nonterminal]) {
      if (--missing[user] == 0) {
        open.push_back(user);
      }
    }
  }
  return holds;
}

ContextFreeGrammar::SlotId ContextFreeGrammar::slot_of(const std::vector<Symbol>& symbols) {
  SlotId rest = kEnd;
  for (auto symbol = symbols.rbegin(); symbol != symbols.rend(); ++symbol) {
    const uint32_t words[] = {symbol->is_terminal ? 1U : 0U, symbol->index, rest};
    rest = slot_ids_.intern(words);
    if (rest == slots_.size()) {
      slots_.push_back({*symbol, words[2]});
    }
  }
  return rest;
}

void ContextFreeGrammar::find_heads(const std::vector<Production>& productions) {
  std::vector<std::vector<uint32_t>> heads(nullable_.size());
  std::vector<std::vector<uint32_t>> bodies(marks_.captures.empty() ? 0 : nullable_.size());
  for (const Production& production : productions) {
    if (!bodies.empty()) {
      bodies[production.nonterminal].push_back(slot_of(production.symbols));
    }
    for (SlotId id = slot_of(production.symbols); id != kEnd; id = slots_[id].next) {
      heads[production.nonterminal].push_back(id);
      if (!is_nullable(slots_[id].symbol)) {
        break;
      }
    }
  }
  for (std::vector<uint32_t>& list : heads) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    heads_.append(list);
  }
  for (const std::vector<uint32_t>& list : bodies) {
    bodies_.append(list);
  }
}

}  // namespace specdec
