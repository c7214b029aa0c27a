#include "tests/support/letter_grammar.h"

#include "grammar/cfg/earley_automaton.h"
#include "grammar/regex/regex_parser.h"

namespace specdec {

std::shared_ptr<const CompiledGrammar> letter_grammar(const std::vector<std::string>& pieces,
                                                      std::string_view pattern,
                                                      const Tokenizer* canonical) {
  std::vector<Token> ends;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].empty()) {
      ends.push_back(static_cast<Token>(i));
    }
  }
  auto vocabulary = std::make_shared<GrammarVocabulary>(
      std::vector<std::string_view>(pieces.begin(), pieces.end()), ends);
  RegexStore& regexes = vocabulary->regexes();
  auto automaton = make_regex_automaton(regexes, parse_regex(regexes, pattern, false));
  if (canonical != nullptr) {
    vocabulary->learn_cuts(*canonical);
  }
  return std::make_shared<const CompiledGrammar>(
      std::move(vocabulary), std::move(automaton), GrammarLimits().max_mask_bytes,
      canonical != nullptr ? Cuts::kCanonical : Cuts::kAny);
}

}  // namespace specdec
