#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "grammar/grammar_limits.h"
#include "grammar/json/json_schema.h"

namespace specdec {

/// The notations in which a grammar can be given.
enum class GrammarKind { kJsonSchema, kRegex, kGbnf, kLark, kChoice, kTrigger, kTags, kToolCalls };

/// The names that configs use, in the order above: "json_schema", "regex", ...
const std::vector<std::string>& grammar_kind_names();
const std::string& grammar_kind_name(GrammarKind kind);
/// Kind of that name; nothing when there is none.
std::optional<GrammarKind> parse_grammar_kind(std::string_view name);

/// A grammar as it is given, in any notation. Members of other kinds have no effect.
struct GrammarSource {
  struct Trigger;

  GrammarKind kind = GrammarKind::kJsonSchema;
  std::string name;  ///< stands in front of errors, such as the file; "" = the kind's name
  /// json_schema, regex, gbnf, lark; a regex matches texts as a whole. tags: JSON, see
  /// parse_tag_format. tool_calls: JSON, see parse_tool_calls.
  std::string text;
  std::string start;                 ///< gbnf, lark: the rule of whole texts; "" = root, or start
  std::vector<std::string> choices;  ///< choice: the texts
  std::vector<Trigger> triggers;     ///< trigger: see make_trigger_automaton
  JsonSchemaOptions schema;          ///< json_schema, and those in lark, tags and tool_calls
  GrammarLimits limits;
  Cuts cuts = Cuts::kAny;  ///< cuts of a whole grammar; a trigger's has those of the whole
};

/// Tag `begin` after which a text of the grammar must come, then the tag `end`.
struct GrammarSource::Trigger {
  std::string begin;
  GrammarSource grammar;
  std::string end;  ///< may be empty
};

/// Compiles a grammar. Throws GrammarError saying where (name, line and column or pointer) and what
/// when the grammar is not right, not supported or too large, and when it has no text at all. For
/// canonical cuts the vocabulary must have learned them.
std::shared_ptr<const CompiledGrammar> compile_grammar(
    const std::shared_ptr<GrammarVocabulary>& vocabulary, const GrammarSource& source);

/// Checks a grammar: throws what compile_grammar would, but for names of tokens, which only a
/// vocabulary knows: these it returns.
std::vector<std::string> check_grammar(const GrammarSource& source);

}  // namespace specdec
