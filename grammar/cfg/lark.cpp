#include "grammar/cfg/lark.h"

#include "grammar/cfg/context_free_builder.h"
#include "grammar/cfg/earley_automaton.h"
#include "grammar/cfg/lark_parser.h"

namespace specdec {

std::unique_ptr<Automaton> make_lark_automaton(RegexStore& regexes, std::string_view text,
                                               std::string_view where, const RuleParts& parts) {
  GrammarText reader(text, where, parts.limits);
  LarkParser parser(regexes, reader, parts);
  RuleSet rules = parser.parse();
  const RuleId whole = parser.add_whole(rules, parts.start.empty() ? "start" : parts.start);
  return std::make_unique<EarleyAutomaton>(
      regexes, make_context_free(regexes, rules, whole, reader, parts.limits), parts.limits);
}

}  // namespace specdec
