// Embedded automata and named tokens in the states of a context-free grammar.
#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "grammar/cfg/earley_closure.h"

namespace specdec {

std::vector<EarleyAutomaton::Embedded> EarleyAutomaton::embedded(StateId state) const {
  std::vector<Embedded> result;
  if (tag(state) == kEmbedding) {
    const auto words = states_[state];
    for (size_t i = 2; i < words.size(); i += 3) {
      result.push_back({words[i], words[i + 1], words[i + 2]});
    }
  }
  return result;
}

StateId EarleyAutomaton::plain(StateId state) const {
  return tag(state) == kEmbedding ? states_[state][1] : state;
}

StateId EarleyAutomaton::intern(StateId plain, std::vector<Embedded> embedded) {
  if (embedded.empty()) {
    return plain;
  }
  std::sort(embedded.begin(), embedded.end());
  embedded.erase(std::unique(embedded.begin(), embedded.end()), embedded.end());
  check_items(embedded.size());
  std::vector<uint32_t> words = {kEmbedding, plain};
  for (const Embedded& item : embedded) {
    words.insert(words.end(), {item.slot, item.returns, item.inner});
  }
  return states_.intern(words);
}

StateId EarleyAutomaton::next_embedded(StateId state, uint8_t byte) {
  std::vector<Embedded> alive;
  bool ends = false;
  for (Embedded item : embedded(state)) {
    Automaton& automaton = *terminal(item.slot).automaton;
    item.inner = automaton.next(item.inner, byte);
    if (item.inner != kDead) {
      alive.push_back(item);
      ends = ends || automaton.is_complete(item.inner);
    }
  }
  const StateId rest = next(plain(state), byte);
  if (!ends) {
    return join(rest, intern(kDead, std::move(alive)));
  }
  Closure closure(*this);
  for (const Embedded& item : alive) {
    closure.add_embedded(item);
  }
  return join(rest, closure.finish());
}

/// All that either state allows. Embedded texts are whole characters, so that neither is in the
/// middle of one when both have items.
StateId EarleyAutomaton::join(StateId a, StateId b) {
  if (a == kDead || b == kDead) {
    return a == kDead ? b : a;
  }
  std::vector<Embedded> both = embedded(a);
  const std::vector<Embedded> more = embedded(b);
  both.insert(both.end(), more.begin(), more.end());
  a = plain(a);
  b = plain(b);
  if (a == kDead || b == kDead) {
    return intern(a == kDead ? b : a, std::move(both));
  }
  SPECDEC_CHECK(tag(a) <= kComplete && tag(b) <= kComplete, "an embedded text ends in a character");
  std::vector<Item> all = items(a);
  const std::vector<Item> others = items(b);
  all.insert(all.end(), others.begin(), others.end());
  check_items(all.size() + both.size());
  return intern(intern(is_complete(a) || is_complete(b), std::move(all)), std::move(both));
}

void EarleyAutomaton::check_items(size_t count) const {
  if (count > limits_.max_state_items) {
    throw GrammarError(fmt::format(
        "the grammar is too ambiguous: one place of a text has more than max_state_items = {} "
        "alternatives; rewrite rules that match the same text in many ways, or raise the limit",
        limits_.max_state_items));
  }
}

void EarleyAutomaton::begin_call() {
  for (Automaton* automaton : automata_) {
    automaton->begin_call();
  }
}

double EarleyAutomaton::used() const {
  double most = 0.0;
  for (const Automaton* automaton : automata_) {
    most = std::max(most, automaton->used());
  }
  return most;
}

Automaton::Bytes EarleyAutomaton::candidates(StateId state) {
  Bytes bytes;
  if (tag(state) != kEmbedding || plain(state) != kDead) {
    return bytes.set();
  }
  for (const Embedded& item : embedded(state)) {
    bytes |= terminal(item.slot).automaton->candidates(item.inner);
  }
  return bytes;
}

std::vector<Token> EarleyAutomaton::tokens(StateId state) {
  std::vector<Token> tokens;
  if (named_tokens_.empty() || tag(plain(state)) > kComplete) {
    return tokens;
  }
  for (const Item& item : items(plain(state))) {
    if (const auto token = terminal(item.slot).token) {
      tokens.push_back(*token);
    }
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

StateId EarleyAutomaton::next_token(StateId state, Token token) {
  if (tag(plain(state)) > kComplete) {
    return kDead;
  }
  Closure closure(*this);
  for (const Item& item : items(plain(state))) {
    if (terminal(item.slot).token == token) {
      closure.enter(grammar_->slot(item.slot).next, item.returns);
    }
  }
  return closure.finish();
}

/// Inside strings of embedded automata, while nothing else may come. Names that are told apart in
/// one of several are left to its bytes.
bool EarleyAutomaton::describe(StateId state, OpenString& string) {
  const std::vector<Embedded> all = embedded(state);
  if (all.empty() || plain(state) != kDead) {
    return false;
  }
  std::vector<OpenString::Part> parts;
  for (const Embedded& item : all) {
    StringStates* inner = terminal(item.slot).automaton->string_states();
    OpenString own;
    if (inner == nullptr || !inner->describe(item.inner, own) ||
        (all.size() > 1 && !own.words.empty()) ||
        (!parts.empty() && own.escapes != string.escapes)) {
      return false;
    }
    for (OpenString::Part& part : own.parts) {
      if (part.closed != kDead) {
        Closure closure(*this);
        closure.add_embedded({item.slot, item.returns, part.closed});
        part.closed = closure.finish();
      }
      parts.push_back(part);
    }
    string = std::move(own);
  }
  string.parts = unite(parts);
  return true;
}

/// Strings of any length with the same behind them are one language.
std::vector<OpenString::Part> EarleyAutomaton::unite(const std::vector<OpenString::Part>& parts) {
  constexpr OpenString::Part kAny;
  const auto is_plain = [&](const OpenString::Part& part) {
    return part.min == kAny.min && part.max == kAny.max && !part.is_name && !part.text_matters &&
           !part.narrow;
  };
  std::map<StateId, std::vector<RegexId>> languages;  // by what is behind
  std::vector<OpenString::Part> united;
  for (const OpenString::Part& part : parts) {
    if (is_plain(part)) {
      languages[part.closed].push_back(part.language);
    } else {
      united.push_back(part);
    }
  }
  for (const auto& [closed, all] : languages) {
    united.push_back({.language = regexes_.any_of(all), .closed = closed});
  }
  return united;
}

bool EarleyAutomaton::depends_on_string(StateId state) {
  const std::vector<Embedded> all = embedded(state);
  return std::any_of(all.begin(), all.end(), [&](const Embedded& item) {
    StringStates* inner = terminal(item.slot).automaton->string_states();
    return inner != nullptr && inner->depends_on_string(item.inner);
  });
}

}  // namespace specdec
