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
  bool schema_order = true;  ///< known names in the order of `properties`; else in any order
  /// Names in any order although `schema_order`, of which only what it says of numbers is left.
  bool any_order_of_names = false;
  bool assert_formats = true;          ///< `format` is an assertion; else an annotation
  std::string whitespace = "compact";  ///< "compact", "spaced", "any", or "indent:N"
  /// Most characters between two tokens where whitespace is "any"; 0: `usual_max_whitespace`.
  /// Refused where it bounds nothing.
  uint32_t max_whitespace = 0;
  /// What bounds white space without max_whitespace; 0: a line break and 16 others.
  uint32_t usual_max_whitespace = 0;
  /// Style of escapes. In both, characters may be escaped that the vocabulary's tokens do not
  /// spell.
  EscapeStyle escapes = EscapeStyle::kMinimal;
  SchemaRegistry registry;  ///< documents that $ref may mean
};

/// Throws GrammarError unless JsonSchemaOptions::whitespace may have that value.
void check_whitespace(const std::string& name);
/// Throws GrammarError for a max_whitespace with which `whitespace` has nothing to do.
void check_whitespace(const JsonSchemaOptions& options);

/// Bound of JsonSchemaOptions::max_whitespace.
inline constexpr uint32_t kMaxWhitespace = 10'000;
/// JsonSchemaOptions::usual_max_whitespace for texts that exist already: no model fills them with
/// blanks.
inline constexpr uint32_t kRecordedWhitespace = 64;

/// What is wrong with a schema whose automaton has no start.
extern const char* const kNothingSatisfies;

/// The values that satisfy a JSON Schema (2020-12, 2019-09, draft 7, 6 and 4), as texts. Throws
/// GrammarError naming the keyword and its JSON pointer when something is not supported or too
/// large. Borrows `languages`.
std::unique_ptr<Automaton> make_json_schema_automaton(SharedLanguages& languages, JsonValue schema,
                                                      const JsonSchemaOptions& options,
                                                      const GrammarLimits& limits = {});

}  // namespace specdec
