#pragma once
#include <functional>
#include <memory>
#include <string>

#include "grammar/automaton.h"
#include "grammar/cfg/grammar_text.h"
#include "grammar/cfg/rule_set.h"
#include "grammar/grammar_limits.h"
#include "grammar/schema/json_value.h"

namespace specdec {

/// What grammars in GBNF and Lark are made with.
struct RuleParts {
  GrammarLimits limits = {};
  std::string start = {};  ///< the rule of whole texts; "" = the usual one
  bool is_part = false;    ///< of a structured text, whose captures nobody asks for
  /// The token of a name, such as "<|call|>" or "<[17]>". Throws GrammarError. Empty: there are no
  /// tokens.
  std::function<Token(const std::string&)> require_token = {};
  /// True for tokens after which generation ends. Empty: there are none.
  std::function<bool(Token)> is_end = {};
  /// The automaton of a JSON Schema, which is a text; it has a start. Throws GrammarError, which
  /// begins with `where` when the text is no JSON. Empty: there are no schemas.
  std::function<std::unique_ptr<Automaton>(const std::string& schema, const std::string& where)>
      compile_schema = {};
};

/// Reads <name> or <[id]> at the cursor, and of ids <[4-7,9]>: one of these tokens. Throws
/// GrammarError with the place.
ExpressionId read_token(RuleSet& rules, GrammarText& text, const RuleParts& parts);

/// Reads a JSON object at the cursor; errors call it `what`. Throws GrammarError with the place.
JsonValue read_json_object(GrammarText& text, std::string_view what);

/// Reads a JSON Schema, an object, at the cursor; `start`: where its part of the grammar begins.
ExpressionId read_schema(RuleSet& rules, GrammarText& text, const RuleParts& parts, size_t start);

}  // namespace specdec
