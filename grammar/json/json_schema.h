#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/grammar_limits.h"
#include "grammar/json/json_string_decoder.h"
#include "grammar/json/shared_languages.h"
#include "grammar/schema/json_value.h"
#include "grammar/schema/schema_registry.h"

namespace specdec {

/// How the texts of a JSON Schema are written.
struct JsonSchemaOptions {
  bool schema_order = true;    ///< known names in the order of `properties`; else in any order
  bool assert_formats = true;  ///< `format` is an assertion; else an annotation
  std::string whitespace = "compact";  ///< "compact", "spaced", "any", or "indent:N"
  EscapeStyle escapes = EscapeStyle::kAny;
  SchemaRegistry registry;  ///< documents that $ref may mean
};

/// Throws GrammarError unless JsonSchemaOptions::whitespace may have that value.
void check_whitespace(const std::string& name);

/// What is wrong with a schema whose automaton has no start.
extern const char* const kNothingSatisfies;

/// The values that satisfy a JSON Schema (2020-12, 2019-09, draft 7, 6 and 4), as texts. Throws
/// GrammarError naming the keyword and its JSON pointer when something is not supported or too
/// large. Borrows `languages`.
std::unique_ptr<Automaton> make_json_schema_automaton(SharedLanguages& languages, JsonValue schema,
                                                      const JsonSchemaOptions& options,
                                                      const GrammarLimits& limits = {});

}  // namespace specdec
