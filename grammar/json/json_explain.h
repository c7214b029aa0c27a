#pragma once
#include <string>

#include "grammar/json/json_automaton.h"

namespace specdec {

/// What a state of a JSON text allows, said in words.
class JsonAutomaton::Explain {
 public:
  explicit Explain(JsonAutomaton& self) : self_(self) {}

  std::string thread(const Thread& thread);

 private:
  std::string names(ObjectStateId id);
  std::string string(const StringState& state);

  JsonAutomaton& self_;
};

}  // namespace specdec
