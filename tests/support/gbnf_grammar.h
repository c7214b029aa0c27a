#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "grammar/cfg/earley_automaton.h"
#include "grammar/cfg/gbnf.h"
#include "tests/grammar/automaton_checks.h"

namespace specdec {

/// The automaton of a grammar in GBNF, and what is asked of it.
class Gbnf {
 public:
  explicit Gbnf(std::string_view text) : automaton_(make_gbnf_automaton(regexes_, text, "test")) {}

  bool accepts(std::string_view text) { return specdec::accepts(*automaton_, text); }
  bool is_prefix(std::string_view text) { return specdec::is_prefix(*automaton_, text); }
  StateId walk(std::string_view text) { return specdec::walk(*automaton_, text); }
  std::string completion(std::string_view text) {
    return automaton_->completion(walk(text)).value_or("none");
  }
  Automaton& operator*() { return *automaton_; }
  Automaton* operator->() { return automaton_.get(); }
  EarleyAutomaton& earley() { return dynamic_cast<EarleyAutomaton&>(*automaton_); }

 private:
  RegexStore regexes_;
  std::unique_ptr<Automaton> automaton_;
};

}  // namespace specdec
