#pragma once
#include <string>

#include "grammar/schema/json_value.h"
#include "grammar/tags/delimiters.h"
#include "grammar/tags/tag_format.h"
#include "grammar/tags/tool_calls.h"

namespace specdec {

/// The arguments of a call, as a style writes them. Notations other than JSON write no names but
/// those of `properties`. Throws GrammarError for a keyword that they cannot enforce, and for
/// values that need a delimiter of the style.
TagFormat tool_arguments(const ToolCallStyle& style, const JsonValue& schema,
                         const std::string& place, const SchemaCheck& check);

}  // namespace specdec
