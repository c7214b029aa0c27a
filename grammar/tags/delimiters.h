#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "grammar/schema/json_value.h"
#include "grammar/tags/tool_calls.h"

namespace specdec {

/// Throws GrammarError for a schema that nothing satisfies.
using SchemaCheck = std::function<void(const JsonValue&)>;

/// The first of the style's delimiters that is in the text; "" for none.
std::string_view delimiter_in(const ToolCallStyle& style, std::string_view text);

/// The strings of a schema (of keywords for strings) that no parser cuts: those without the style's
/// delimiters. Throws GrammarError when there are none.
JsonValue without_delimiters(const ToolCallStyle& style, const JsonValue& strings,
                             const SchemaCheck& check);

/// The values of a schema in whose strings and names, written as JSON, no delimiter of the style
/// is. `no_names`: a regular expression that no name matches.
JsonValue values_without_delimiters(const ToolCallStyle& style, const JsonValue& schema,
                                    const std::string& no_names = "");

/// Checks arguments in JSON: throws GrammarError, with the pointer into the schema, where a name,
/// an enum, a const or a pattern needs a delimiter of the style. What `not` and `if` say needs
/// none.
void check_delimiters(const ToolCallStyle& style, const JsonValue& schema,
                      const SchemaCheck& check);

}  // namespace specdec
