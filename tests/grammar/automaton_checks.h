#pragma once
#include <deque>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "grammar/automaton.h"

namespace specdec {

inline StateId walk(Automaton& automaton, std::string_view text) {
  StateId state = automaton.start();
  for (const char byte : text) {
    state = automaton.next(state, static_cast<uint8_t>(byte));
  }
  return state;
}

inline bool is_prefix(Automaton& automaton, std::string_view text) {
  return walk(automaton, text) != Automaton::kDead;
}

inline bool accepts(Automaton& automaton, std::string_view text) {
  const StateId state = walk(automaton, text);
  return state != Automaton::kDead && automaton.is_complete(state);
}

inline std::vector<uint8_t> alive_bytes(Automaton& automaton, StateId state) {
  std::vector<uint8_t> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    if (automaton.next(state, static_cast<uint8_t>(byte)) != Automaton::kDead) {
      bytes.push_back(static_cast<uint8_t>(byte));
    }
  }
  return bytes;
}

/// True when some text of at most `max_states` states' search completes the state.
inline bool can_finish(Automaton& automaton, StateId state, size_t max_states = 3000) {
  std::deque<StateId> open = {state};
  std::unordered_map<StateId, bool> seen = {{state, true}};
  while (!open.empty() && seen.size() < max_states) {
    const StateId here = open.front();
    open.pop_front();
    if (automaton.is_complete(here)) {
      return true;
    }
    for (const uint8_t byte : alive_bytes(automaton, here)) {
      const StateId there = automaton.next(here, byte);
      if (seen.emplace(there, true).second) {
        open.push_back(there);
      }
    }
  }
  return false;
}

/// A text of `length` random bytes that the grammar allows, or less when it ends before.
inline std::string random_text(Automaton& automaton, std::mt19937& random, size_t length) {
  std::string text;
  StateId state = automaton.start();
  while (text.size() < length) {
    const std::vector<uint8_t> bytes = alive_bytes(automaton, state);
    if (bytes.empty()) {
      break;
    }
    const uint8_t byte = bytes[random() % bytes.size()];
    text += static_cast<char>(byte);
    state = automaton.next(state, byte);
  }
  return text;
}

/// What `make` throws as GrammarError.
template <class Make>
std::string grammar_error(Make&& make) {
  try {
    make();
  } catch (const GrammarError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace specdec
