#include "grammar/cfg/earley_closure.h"

#include <algorithm>

#include "core/error.h"
#include "grammar/interruption.h"
#include "grammar/tables/components.h"

namespace specdec {
namespace {

constexpr size_t kStepsAnItem = 20;  ///< steps that are allowed for each item that is

template <class T>
void sort_unique(std::vector<T>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace

void EarleyAutomaton::Closure::begin(ReturnId returns) {
  call(0, ContextFreeGrammar::kEnd, returns);
  if (grammar_.is_nullable({false, 0})) {
    enter(ContextFreeGrammar::kEnd, returns);
  }
}

void EarleyAutomaton::Closure::enter(SlotId slot, ReturnId returns) {
  if (seen_.insert(static_cast<uint64_t>(slot) << 32 | returns).second) {
    count_items(1);
    open_.emplace_back(slot, returns);
  }
}

void EarleyAutomaton::Closure::count_items(size_t more) {
  count_ += more;
  automaton_.check_items(count_);
}

void EarleyAutomaton::Closure::count_steps(size_t more) {
  Interruption::check();
  steps_ += more;
  automaton_.check_items(steps_ / kStepsAnItem);
}

StateId EarleyAutomaton::Closure::finish() {
  complete_and_predict();
  expand_calls();
  join_tails();
  number_calls();
  for (Item& item : items_) {
    if ((item.returns & kLocal) != 0) {
      item.returns = numbers_[item.returns & ~kLocal];
    }
  }
  for (Embedded& item : embedded_) {
    if ((item.returns & kLocal) != 0) {
      item.returns = numbers_[item.returns & ~kLocal];
    }
  }
  return automaton_.intern(automaton_.intern(complete_, std::move(items_)), std::move(embedded_));
}

void EarleyAutomaton::Closure::add_embedded(const Embedded& item) {
  const ContextFreeGrammar::Terminal& terminal = grammar_.terminal_at(item.slot);
  count_items(1);
  const bool complete = terminal.automaton->is_complete(item.inner);
  if (!complete || terminal.automaton->candidates(item.inner).any()) {
    embedded_.push_back(item);
  }
  if (complete) {
    enter(grammar_.slot(item.slot).next, item.returns);
  }
}

void EarleyAutomaton::Closure::complete_and_predict() {
  while (!open_.empty()) {
    const auto [slot, returns] = open_.back();
    open_.pop_back();
    if (slot != ContextFreeGrammar::kEnd) {
      visit(slot, returns);
      continue;
    }
    complete_ = complete_ || returns == 0;
    const auto entries = automaton_.returns_[returns];
    for (size_t i = 0; i < entries.size(); i += 2) {
      enter(entries[i], entries[i + 1]);
    }
  }
}

void EarleyAutomaton::Closure::visit(SlotId slot, uint32_t returns) {
  const ContextFreeGrammar::Slot& here = grammar_.slot(slot);
  if (here.symbol.is_terminal) {
    const ContextFreeGrammar::Terminal& terminal = grammar_.terminal(here.symbol.index);
    if (terminal.automaton != nullptr) {
      embedded_.push_back({slot, returns, terminal.automaton->start()});
    } else {
      items_.push_back({terminal.regex, slot, returns});
    }
  } else {
    call(here.symbol.index, here.next, returns);
  }
  if ((returns & kLocal) == 0 && grammar_.is_nullable(here.symbol)) {
    enter(here.next, returns);
  }
}

/// Expands what is called. Those who call have skipped its empty texts.
void EarleyAutomaton::Closure::expand_calls() {
  for (uint32_t i = 0; i < calls_.size(); ++i) {
    const auto heads = grammar_.heads(calls_[i].nonterminal);
    count_items(heads.size());
    for (const SlotId slot : heads) {
      visit(slot, kLocal | i);
    }
  }
}

void EarleyAutomaton::Closure::call(uint32_t nonterminal, SlotId next, uint32_t returns) {
  const auto [known, is_new] = call_of_.emplace(nonterminal, static_cast<uint32_t>(calls_.size()));
  if (is_new) {
    calls_.push_back({.nonterminal = nonterminal, .entries = {}, .tails = {}, .outer = {}});
  }
  Call& target = calls_[known->second];
  if (next != ContextFreeGrammar::kEnd) {
    target.entries.emplace_back(next, returns);
  } else if ((returns & kLocal) != 0) {
    target.tails.push_back(returns & ~kLocal);
  } else {
    target.outer.push_back(returns);
  }
}

/// Calls at the end of rules return to where these rules do.
void EarleyAutomaton::Closure::join_tails() {
  std::vector<std::vector<uint32_t>> edges;
  edges.reserve(calls_.size());
  for (const Call& call : calls_) {
    edges.push_back(call.tails);
  }
  for (const std::vector<uint32_t>& component : components_of(edges)) {
    join_component(component);
  }
}

void EarleyAutomaton::Closure::join_component(const std::vector<uint32_t>& members) {
  Call all;
  for (const uint32_t member : members) {
    const Call& call = calls_[member];
    all.entries.insert(all.entries.end(), call.entries.begin(), call.entries.end());
    all.tails.insert(all.tails.end(), call.tails.begin(), call.tails.end());
    all.outer.insert(all.outer.end(), call.outer.begin(), call.outer.end());
  }
  sort_unique(all.tails);
  std::vector<ReturnId> present;
  for (const uint32_t tail : all.tails) {
    if (!std::binary_search(members.begin(), members.end(), tail)) {
      const Call& call = calls_[tail];
      count_steps(call.entries.size());
      all.entries.insert(all.entries.end(), call.entries.begin(), call.entries.end());
      present.insert(present.end(), call.outer.begin(), call.outer.end());
    }
  }
  add_outer(all, present);
  sort_unique(all.entries);
  for (const uint32_t member : members) {
    calls_[member].entries = all.entries;
    calls_[member].outer = all.outer;
  }
}

/// Adds the entries of older return sets, of which `present` are there already. Where one was made
/// of others, as in nested rules that may end in many ways, these are not looked at again.
void EarleyAutomaton::Closure::add_outer(Call& call, const std::vector<ReturnId>& present) {
  std::unordered_set<ReturnId> covered;
  std::vector<ReturnId> open = present;
  const auto cover = [&] {
    while (!open.empty()) {
      const ReturnId top = open.back();
      open.pop_back();
      if (covered.insert(top).second) {
        const std::vector<ReturnId>& parts = automaton_.parts_[top];
        open.insert(open.end(), parts.begin(), parts.end());
      }
    }
  };
  cover();
  sort_unique(call.outer);
  std::vector<ReturnId> kept = present;
  for (size_t i = call.outer.size(); i-- > 0;) {  // parts have smaller numbers than their whole
    const ReturnId outer = call.outer[i];
    if (covered.contains(outer)) {
      continue;
    }
    const auto entries = automaton_.returns_[outer];
    count_steps(entries.size() / 2);
    for (size_t k = 0; k < entries.size(); k += 2) {
      call.entries.emplace_back(entries[k], entries[k + 1]);
    }
    kept.push_back(outer);
    if (i > 0) {
      open.push_back(outer);
      cover();
    }
  }
  sort_unique(kept);
  call.outer = std::move(kept);
}

/// Numbers the return sets, those first that contain no other new ones.
void EarleyAutomaton::Closure::number_calls() {
  numbers_.assign(calls_.size(), kLocal);
  std::vector<std::vector<uint32_t>> edges(calls_.size());
  for (size_t i = 0; i < calls_.size(); ++i) {
    for (const auto& [slot, returns] : calls_[i].entries) {
      if ((returns & kLocal) != 0) {
        edges[i].push_back(returns & ~kLocal);
      }
    }
    sort_unique(edges[i]);
  }
  for (const std::vector<uint32_t>& component : components_of(edges)) {
    const std::vector<uint32_t>& own = edges[component[0]];
    const bool cyclic =
        component.size() > 1 || std::binary_search(own.begin(), own.end(), component[0]);
    if (cyclic) {
      number_cycle(component);
    } else {
      numbers_[component[0]] = automaton_.returns_.intern(encode(calls_[component[0]]));
      automaton_.note_parts(numbers_[component[0]], calls_[component[0]].outer);
    }
  }
}

/// Pairs of slot and return set, sorted; members of a cycle by their index in it.
std::vector<uint32_t> EarleyAutomaton::Closure::encode(const Call& call) const {
  std::vector<Entry> entries = call.entries;
  for (auto& [slot, returns] : entries) {
    returns = (returns & kLocal) != 0 ? numbers_[returns & ~kLocal] : returns;
  }
  sort_unique(entries);
  std::vector<uint32_t> words;
  for (const auto& [slot, returns] : entries) {
    words.push_back(slot);
    words.push_back(returns);
  }
  return words;
}

/// Return sets that contain one another: in the order of their nonterminals, so that equal cycles
/// get equal numbers.
void EarleyAutomaton::Closure::number_cycle(std::vector<uint32_t> members) {
  std::sort(members.begin(), members.end(),
            [&](uint32_t a, uint32_t b) { return calls_[a].nonterminal < calls_[b].nonterminal; });
  for (uint32_t i = 0; i < members.size(); ++i) {
    numbers_[members[i]] = kLocal | i;
  }
  std::vector<uint32_t> key;
  for (const uint32_t member : members) {
    const std::vector<uint32_t> words = encode(calls_[member]);
    key.push_back(static_cast<uint32_t>(words.size()));
    key.insert(key.end(), words.begin(), words.end());
  }
  const uint32_t cycle = automaton_.cycles_.intern(key);
  const bool is_new = cycle == automaton_.cycle_bases_.size();
  if (is_new) {
    automaton_.cycle_bases_.push_back(automaton_.returns_.size());
  }
  for (uint32_t i = 0; i < members.size(); ++i) {
    numbers_[members[i]] = automaton_.cycle_bases_[cycle] + i;
  }
  for (size_t i = 0; is_new && i < members.size(); ++i) {
    const ReturnId id = automaton_.returns_.append(encode(calls_[members[i]]));
    automaton_.note_parts(id, calls_[members[i]].outer);
  }
}

}  // namespace specdec
