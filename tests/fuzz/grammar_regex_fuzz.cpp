// Any pattern is either refused, or an expression whose texts can be walked: masks and steps agree,
// no text runs into a dead end. What matches as a whole holds a match.
#include "grammar/cfg/earley_automaton.h"
#include "grammar/regex/regex_parser.h"
#include "tests/fuzz/walk_grammar.h"

namespace {

using specdec::RegexId;
using specdec::RegexStore;
using specdec::fuzz::GrammarInput;
using specdec::fuzz::require;

void check_language(RegexStore& regexes, RegexId regex) {
  const auto shortest = regexes.shortest(regex);
  require(shortest.has_value() != regexes.is_nothing(regex));
  require(!shortest || regexes.matches(regex, *shortest));
}

/// Texts that match as a whole, or that hold a match.
void walk(const GrammarInput& input, bool search) {
  const auto vocabulary = specdec::fuzz::fuzz_vocabulary();
  RegexStore& regexes = vocabulary->regexes();
  const RegexId regex = parse_regex(regexes, input.text, search);
  check_language(regexes, regex);
  if (!regexes.is_nothing(regex)) {
    specdec::fuzz::walk(std::make_shared<const specdec::CompiledGrammar>(
                            vocabulary, make_regex_automaton(regexes, regex)),
                        input);
  }
  if (search) {
    const RegexId whole = parse_regex(regexes, input.text, false);
    require(regexes.is_nothing(regexes.all_of(whole, regexes.complement(regex))));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const GrammarInput input({reinterpret_cast<const char*>(data), size});
  for (const bool search : {false, true}) {
    try {
      walk(input, search);
    } catch (const specdec::Error&) {
      continue;
    }
  }
  return 0;
}
