#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/json_string_decoder.h"
#include "grammar/json_value.h"
#include "grammar/shared_languages.h"

namespace specdec {

/// Masks that a grammar keeps, unless it is told otherwise.
inline constexpr uint64_t kMaxMaskBytes = uint64_t{64} << 20;

/// States that a grammar may add to the automata of its vocabulary's regular expressions, unless it
/// is told otherwise.
inline constexpr uint64_t kMaxRegexStates = 250'000;

/// How the texts of a JSON Schema are written, and how much their grammar may cost.
struct JsonSchemaOptions {
  bool schema_order = true;    ///< known names in the order of `properties`; else in any order
  bool assert_formats = true;  ///< `format` is an assertion; else an annotation
  std::string whitespace = "compact";  ///< "compact", "spaced", "any", or "indent:N"
  EscapeStyle escapes = EscapeStyle::kAny;
  /// Documents by URI that $ref may mean, as JSON texts.
  std::vector<std::pair<std::string, std::string>> registry;
  uint64_t max_alternatives = 10'000;
  uint64_t max_steps = 3'000'000;
  uint64_t max_states = 1'000'000;  ///< of the automaton; see CompiledGrammar::is_used_up
  uint64_t max_regex_states = kMaxRegexStates;
  uint64_t max_mask_bytes = kMaxMaskBytes;  ///< of masks that are kept; others are made again
};

/// Throws GrammarError unless JsonSchemaOptions::whitespace may have that value.
void check_whitespace(const std::string& name);

/// What is wrong with a schema whose automaton has no start.
extern const char* const kNothingSatisfies;

/// The values that satisfy a JSON Schema (2020-12, 2019-09, draft 7, 6 and 4), as texts. Throws
/// GrammarError naming the keyword and its JSON pointer when something is not supported or too
/// large. Borrows `regexes`.
std::unique_ptr<Automaton> make_json_schema_automaton(SharedLanguages& languages, JsonValue schema,
                                                      const JsonSchemaOptions& options);

}  // namespace specdec
