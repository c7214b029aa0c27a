#include "grammar/cfg/earley_automaton.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/error.h"
#include "grammar/cfg/earley_closure.h"
#include "grammar/cfg/earley_completion.h"

namespace specdec {
EarleyAutomaton::EarleyAutomaton(RegexStore& regexes,
                                 std::unique_ptr<const ContextFreeGrammar> grammar,
                                 const GrammarLimits& limits)
    : regexes_(regexes), grammar_(std::move(grammar)), limits_(limits), parts_(2) {
  intern(false, {});  // kDead
  returns_.intern({});
  for (const ContextFreeGrammar::Terminal& terminal : grammar_->terminals()) {
    if (terminal.token) {
      named_tokens_.push_back(*terminal.token);
    }
    if (terminal.automaton != nullptr) {
      automata_.push_back(terminal.automaton.get());
    }
    counts_tokens_ = counts_tokens_ || terminal.max_tokens > 0;
  }
  std::sort(named_tokens_.begin(), named_tokens_.end());
  named_tokens_.erase(std::unique(named_tokens_.begin(), named_tokens_.end()), named_tokens_.end());
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
  result.reserve(words.size() / item_words());
  for (size_t i = 1; i < words.size(); i += item_words()) {
    result.push_back({words[i], words[i + 1], words[i + 2], counts_tokens_ ? words[i + 3] : 0});
  }
  return result;
}

/// Interns a state. Of items that differ only in the tokens that were counted, the one with the
/// fewest is kept: it may do all that the others may.
StateId EarleyAutomaton::intern(bool complete, std::vector<Item> items) {
  std::sort(items.begin(), items.end());
  const auto is_same = [](const Item& a, const Item& b) {
    return a.rest == b.rest && a.slot == b.slot && a.returns == b.returns;
  };
  items.erase(std::unique(items.begin(), items.end(), is_same), items.end());
  std::vector<uint32_t> words = {complete ? kComplete : kText};
  words.reserve(1 + item_words() * items.size());
  for (const Item& item : items) {
    words.insert(words.end(), {item.rest, item.slot, item.returns});
    if (counts_tokens_) {
      words.push_back(item.tokens);
    }
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

bool EarleyAutomaton::is_complete(StateId state) { return tag(plain(state)) == kComplete; }

// ---- Transitions over code points --------------------------------------------------------------

EarleyAutomaton::Table EarleyAutomaton::table(StateId state) {
  if (state >= tables_.size()) {
    tables_.resize(std::max<size_t>(states_.size(), state + size_t{1}));
  }
  if (tables_[state].partition == Table::kNone) {
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
    maps.push_back(regexes_.transitions(rest));
    for (const RegexStore::Transition& transition : maps.back()) {
      lasts.push_back(transition.last);
    }
  }
  std::sort(lasts.begin(), lasts.end());
  lasts.erase(std::unique(lasts.begin(), lasts.end()), lasts.end());
  const size_t first_target = targets_.size();
  std::map<std::vector<RegexId>, uint32_t> classes;
  classes.emplace(std::vector<RegexId>(rests.size(), RegexStore::kNothing), 0);
  targets_.push_back({.point = 0, .state = kDead});
  std::vector<size_t> at(maps.size());
  std::vector<uint32_t> ends;
  std::vector<uint32_t> kinds;  // the class of each range
  for (const char32_t last : lasts) {
    std::vector<RegexId> next(maps.size());
    for (size_t i = 0; i < maps.size(); ++i) {
      at[i] += maps[i][at[i]].last < last ? 1 : 0;
      next[i] = maps[i][at[i]].target;
    }
    const auto [kind, is_new] =
        classes.emplace(std::move(next), static_cast<uint32_t>(classes.size()));
    if (is_new) {
      targets_.push_back({.point = last, .state = kUnknown});
    }
    if (!kinds.empty() && kinds.back() == kind->second) {
      ends.back() = last;
      continue;
    }
    ends.push_back(last);
    kinds.push_back(kind->second);
  }
  return {partitions_.intern(ends), classes_.intern(kinds), first_target};
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
      const bool counts = counts_tokens_ && terminal(item.slot).max_tokens > 0;
      closure.add({rest, item.slot, item.returns, counts ? std::max(item.tokens, 1U) : 0});
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
  return target(here, classes_[here.classes][partitions_.range_of(here.partition, point)], state);
}

// ---- Bytes -------------------------------------------------------------------------------------

StateId EarleyAutomaton::next(StateId state, uint8_t byte) {
  if (state == kDead) {
    return kDead;
  }
  const auto words = states_[state];
  if (words[0] <= kComplete) {
    return byte < 0x80 ? after(state, byte) : next_in_character(state, {}, byte);
  }
  if (words[0] == kEmbedding) {
    return next_embedded(state, byte);
  }
  if (words[0] == kUniform) {
    if ((byte & 0xC0) != 0x80) {
      return kDead;
    }
    const uint32_t rest[] = {kUniform, words[1], words[2] - 1};
    return words[2] == 1 ? words[1] : states_.intern(rest);
  }
  return next_in_character(words[1], {words[2], words[3], words[4]}, byte);
}

StateId EarleyAutomaton::next_in_character(StateId state, Utf8Decoder utf8, uint8_t byte) {
  std::optional<char32_t> point;
  if (!utf8.take(byte, point)) {
    return kDead;
  }
  return point ? after(state, *point) : partial(state, utf8);
}

/// A state in the middle of a character. Where all that it may become leads to the same state, only
/// that state is kept: then long classes like "any character" cost few states.
StateId EarleyAutomaton::partial(StateId state, const Utf8Decoder& utf8) {
  const CodePoints::Range reach = utf8.reach();
  const Table here = table(state);
  const auto ends = partitions_.lasts(here.partition);
  const auto kinds = classes_[here.classes];
  size_t i = partitions_.range_of(here.partition, reach.first);
  const uint32_t kind = kinds[i];
  const bool is_uniform = utf8.is_free() && ends[i] >= reach.last;
  bool is_live = kind != 0;
  for (; !is_live && ends[i] < reach.last; ++i) {
    is_live = kinds[i + 1] != 0;
  }
  if (!is_live) {
    return kDead;
  }
  if (is_uniform) {
    const uint32_t uniform[] = {kUniform, target(here, kind, state), utf8.more};
    return states_.intern(uniform);
  }
  const uint32_t cut[] = {kPartial, state, utf8.value, utf8.more, utf8.size};
  return states_.intern(cut);
}

// ---- Tokens ------------------------------------------------------------------------------------

template <class Change>
StateId EarleyAutomaton::with_items(StateId state, const Change& change) {
  std::vector<Item> all = items(state);
  std::erase_if(all, [&](Item& item) {
    return terminal(item.slot).max_tokens > 0 && !change(item, terminal(item.slot).max_tokens);
  });
  return intern(is_complete(state), std::move(all));
}

/// The state after a token's end. Within a character nothing is counted: the text cannot end there.
StateId EarleyAutomaton::end_token(StateId state) {
  if (!counts_tokens_ || tag(plain(state)) > kComplete) {
    return state;
  }
  const auto count = [](Item& item, uint32_t max_tokens) {
    item.tokens += item.tokens > 0 ? 1 : 0;
    return item.tokens <= max_tokens;  // where it ends, what follows it has begun
  };
  return intern(with_items(plain(state), count), embedded(state));
}

StateId EarleyAutomaton::mask_state(StateId state) {
  const auto forget = [](Item& item, uint32_t /*max_tokens*/) {
    item.tokens = 0;
    return true;
  };
  if (!counts_tokens_) {
    return state;
  }
  if (tag(state) == kEmbedding) {
    return intern(mask_state(plain(state)), embedded(state));
  }
  if (tag(state) <= kComplete) {
    return with_items(state, forget);
  }
  std::vector<uint32_t> words(states_[state].begin(), states_[state].end());
  words[1] = mask_state(words[1]);
  return states_.intern(words);
}

std::unique_ptr<Automaton> make_regex_automaton(RegexStore& regexes, RegexId regex) {
  std::vector<ContextFreeGrammar::Terminal> terminals = {{.regex = regex, .label = "the text"}};
  std::vector<ContextFreeGrammar::Production> productions = {{0, {{true, 0}}}};
  return std::make_unique<EarleyAutomaton>(
      regexes, std::make_unique<ContextFreeGrammar>(regexes, std::move(terminals), 1,
                                                    std::move(productions)));
}

CodePoints EarleyAutomaton::next_points(RegexId rest) {
  std::vector<CodePoints::Range> ranges;
  char32_t first = 0;
  for (const RegexStore::Transition& transition : regexes_.transitions(rest)) {
    if (transition.target != RegexStore::kNothing) {
      ranges.push_back({first, transition.last});
    }
    first = transition.last + 1;
  }
  return CodePoints(ranges);
}

EarleyAutomaton::Way EarleyAutomaton::way(StateId state) {
  Way way;
  for (uint8_t byte = 0x80; tag(state) == kPartial || tag(state) == kUniform; ++byte) {
    if (const StateId there = next(state, byte); there != kDead) {  // no dead ends: some byte does
      way.bytes += static_cast<char>(byte);
      state = there;
      byte = 0x7F;
    }
  }
  if (is_complete(state)) {
    return way;
  }
  if (completion_ == nullptr) {
    completion_ = std::make_shared<Completion>(*this);
  }
  const bool has_items = tag(plain(state)) <= kComplete;
  completion_->after(has_items ? items(plain(state)) : std::vector<Item>(), embedded(state), way);
  return way;
}

std::optional<std::string> EarleyAutomaton::completion(StateId state) {
  const Way found = way(state);
  const bool is_known = !found.bytes.empty() || is_complete(state);
  return is_known ? std::optional(found.bytes) : std::nullopt;
}

std::optional<Token> EarleyAutomaton::completion_token(StateId state) {
  const Way found = way(state);
  return found.bytes.empty() ? found.token : std::nullopt;
}

}  // namespace specdec
