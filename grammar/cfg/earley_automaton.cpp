#include "grammar/cfg/earley_automaton.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "grammar/cfg/earley_closure.h"

namespace specdec {
namespace {

/// The code points that a character may still be: `value` are its bits so far, `more` bytes come.
struct Reach {
  char32_t first = 0;
  char32_t last = 0;
  bool is_whole = false;  ///< any bytes may come
};

Reach reach_of(uint32_t value, uint32_t more, uint32_t size) {
  constexpr std::array<char32_t, 5> kFirst = {0, 0, 0x80, 0x800, 0x10000};
  const char32_t first = value << 6 * more;
  const char32_t last = first | ((1U << 6 * more) - 1);
  Reach reach = {std::max(first, kFirst[size]), std::min(last, CodePoints::kLast), false};
  reach.is_whole = reach.first == first && reach.last == last;
  return reach;
}

}  // namespace

EarleyAutomaton::EarleyAutomaton(RegexStore& regexes,
                                 std::unique_ptr<const ContextFreeGrammar> grammar,
                                 const GrammarLimits& limits)
    : regexes_(regexes), grammar_(std::move(grammar)), limits_(limits), parts_(2), ascii_(1) {
  intern(false, {});  // kDead
  returns_.intern({});
  partitions_.intern({});
}

StateId EarleyAutomaton::start() {
  if (start_ == kUnknown && !grammar_->has_texts()) {
    start_ = kDead;
  }
  if (start_ == kUnknown) {
    const uint32_t end[] = {ContextFreeGrammar::kEnd, 0};
    const ReturnId whole = returns_.intern(end);
    Closure closure(*this);
    closure.begin(whole);
    start_ = closure.finish();
  }
  return start_;
}

std::vector<EarleyAutomaton::Item> EarleyAutomaton::items(StateId state) const {
  const auto words = states_[state];
  std::vector<Item> result;
  result.reserve(words.size() / 3);
  for (size_t i = 1; i < words.size(); i += 3) {
    result.push_back({words[i], words[i + 1], words[i + 2]});
  }
  return result;
}

StateId EarleyAutomaton::intern(bool complete, std::vector<Item> items) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  std::vector<uint32_t> words = {complete ? kComplete : kText};
  words.reserve(1 + 3 * items.size());
  for (const Item& item : items) {
    words.insert(words.end(), {item.rest, item.slot, item.returns});
  }
  return states_.intern(words);
}

void EarleyAutomaton::note_parts(ReturnId id, const std::vector<ReturnId>& parts) {
  if (id < parts_.size()) {
    return;  // known; its parts are what it was first made of
  }
  parts_.resize(id + size_t{1});
  for (const ReturnId part : parts) {
    if (part != id) {
      parts_[id].push_back(part);
    }
  }
}

bool EarleyAutomaton::is_complete(StateId state) { return tag(state) == kComplete; }

// ---- Transitions over code points --------------------------------------------------------------

EarleyAutomaton::Table EarleyAutomaton::table(StateId state) {
  if (state >= tables_.size()) {
    tables_.resize(std::max<size_t>(states_.size(), state + size_t{1}));
  }
  if (tables_[state].partition == 0) {
    const Table built = build(state);
    tables_[state] = built;
  }
  return tables_[state];
}

/// Cuts the code points where some item's next state changes; ranges with the same next states are
/// one class. Class 0 are those after which nothing is left.
EarleyAutomaton::Table EarleyAutomaton::build(StateId state) {
  std::vector<RegexId> rests;
  for (const Item& item : items(state)) {
    if (rests.empty() || rests.back() != item.rest) {  // items are sorted
      rests.push_back(item.rest);
    }
  }
  std::vector<std::vector<RegexStore::Transition>> maps;
  std::vector<char32_t> lasts = {CodePoints::kLast};
  for (const RegexId rest : rests) {
    const auto transitions = regexes_.transitions(rest);
    maps.emplace_back(transitions.begin(), transitions.end());
    for (const RegexStore::Transition& transition : transitions) {
      lasts.push_back(transition.last);
    }
  }
  std::sort(lasts.begin(), lasts.end());
  lasts.erase(std::unique(lasts.begin(), lasts.end()), lasts.end());
  const Table table = {.partition = 0, .first_target = targets_.size()};
  std::map<std::vector<RegexId>, uint32_t> classes;
  classes.emplace(std::vector<RegexId>(rests.size(), RegexStore::kNothing), 0);
  targets_.push_back({.point = 0, .state = kDead});
  std::vector<size_t> places(maps.size());
  std::vector<uint32_t> words;
  for (const char32_t last : lasts) {
    std::vector<RegexId> next(maps.size());
    for (size_t i = 0; i < maps.size(); ++i) {
      places[i] += maps[i][places[i]].last < last ? 1 : 0;
      next[i] = maps[i][places[i]].target;
    }
    const auto [place, is_new] =
        classes.emplace(std::move(next), static_cast<uint32_t>(classes.size()));
    if (is_new) {
      targets_.push_back({.point = last, .state = kUnknown});
    }
    if (!words.empty() && words.back() == place->second) {
      words.resize(words.size() - 2);
    }
    words.push_back(last);
    words.push_back(place->second);
  }
  return {partition_of(words), table.first_target};
}

uint32_t EarleyAutomaton::partition_of(const std::vector<uint32_t>& words) {
  const uint32_t id = partitions_.intern(words);
  if (id == ascii_.size()) {
    Ascii& ascii = ascii_.emplace_back();
    for (uint32_t c = 0, i = 0; c < ascii.size(); ++c) {
      i += words[i] < c ? 2 : 0;
      ascii[c] = words[i + 1];
    }
  }
  return id;
}

StateId EarleyAutomaton::target(const Table& table, uint32_t kind, StateId from) {
  const Target known = targets_[table.first_target + kind];
  if (known.state != kUnknown) {
    return known.state;
  }
  Closure closure(*this);
  for (const Item& item : items(from)) {
    const RegexId rest = regexes_.next(item.rest, known.point);
    if (rest == RegexStore::kNothing) {
      continue;
    }
    if (rest != RegexStore::kEmpty) {
      closure.add({rest, item.slot, item.returns});
    }
    if (regexes_.matches_empty(rest)) {
      closure.enter(grammar_->slot(item.slot).next, item.returns);
    }
  }
  const StateId state = closure.finish();
  targets_[table.first_target + kind].state = state;
  return state;
}

StateId EarleyAutomaton::after(StateId state, char32_t point) {
  const Table here = table(state);
  if (point < ascii_[0].size()) {
    return target(here, ascii_[here.partition][point], state);
  }
  const auto words = partitions_[here.partition];
  size_t low = 0;
  for (size_t high = words.size() / 2 - 1; low < high;) {
    const size_t middle = (low + high) / 2;
    if (words[2 * middle] < point) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return target(here, words[2 * low + 1], state);
}

// ---- Bytes -------------------------------------------------------------------------------------

StateId EarleyAutomaton::next(StateId state, uint8_t byte) {
  if (state == kDead) {
    return kDead;
  }
  const auto words = states_[state];
  if (words[0] <= kComplete) {
    return byte < 0x80 ? after(state, byte) : lead_byte(state, byte);
  }
  if ((byte & 0xC0) != 0x80) {
    return kDead;
  }
  if (words[0] == kUniform) {
    const uint32_t rest[] = {kUniform, words[1], words[2] - 1};
    return words[2] == 1 ? words[1] : states_.intern(rest);
  }
  return partial(words[1], words[2] << 6 | (byte & 0x3FU), words[3] - 1, words[4]);
}

StateId EarleyAutomaton::lead_byte(StateId state, uint8_t byte) {
  if (byte < 0xC2 || byte > 0xF4) {
    return kDead;
  }
  if (byte < 0xE0) {
    return partial(state, byte & 0x1FU, 1, 2);
  }
  return byte < 0xF0 ? partial(state, byte & 0x0FU, 2, 3) : partial(state, byte & 0x07U, 3, 4);
}

/// In the middle of a character. Where all that it may become leads to the same state, only that
/// state is kept: then long classes like "any character" cost few states.
StateId EarleyAutomaton::partial(StateId state, uint32_t value, uint32_t more, uint32_t size) {
  const Reach reach = reach_of(value, more, size);
  if (reach.first > reach.last) {
    return kDead;
  }
  if (more == 0) {
    return after(state, value);
  }
  const Table here = table(state);
  const auto words = partitions_[here.partition];
  size_t i = 0;
  while (words[i] < reach.first) {
    i += 2;
  }
  const uint32_t kind = words[i + 1];
  const bool is_uniform = reach.is_whole && words[i] >= reach.last;
  bool is_live = kind != 0;
  for (; !is_live && words[i] < reach.last; i += 2) {
    is_live = words[i + 3] != 0;
  }
  if (!is_live) {
    return kDead;
  }
  if (is_uniform) {
    const uint32_t uniform[] = {kUniform, target(here, kind, state), more};
    return states_.intern(uniform);
  }
  const uint32_t cut[] = {kPartial, state, value, more, size};
  return states_.intern(cut);
}

std::unique_ptr<Automaton> make_regex_automaton(RegexStore& regexes, RegexId regex) {
  std::vector<ContextFreeGrammar::Terminal> terminals = {{regex, "the text"}};
  std::vector<ContextFreeGrammar::Production> productions = {{0, {{true, 0}}}};
  return std::make_unique<EarleyAutomaton>(
      regexes, std::make_unique<ContextFreeGrammar>(regexes, std::move(terminals), 1,
                                                    std::move(productions)));
}

}  // namespace specdec
