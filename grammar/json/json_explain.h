#pragma once
#include <string>
#include <string_view>

#include "grammar/json/json_automaton.h"

namespace specdec {

/// What a state of a JSON text allows, said in words.
class JsonAutomaton::Explain {
 public:
  Explain(JsonAutomaton& self, StateId state) : self_(self), state_(state) {}

  std::string thread(const Thread& thread);

 private:
  std::string names(ObjectStateId id);
  std::string value(const Thread& thread);
  std::string string(const StringState& state);
  std::string excluded_values(const Thread& thread);
  /// True when one of the bytes may come, after white space that must.
  bool goes_on(std::string_view bytes);

  JsonAutomaton& self_;
  StateId state_;
};

}  // namespace specdec
