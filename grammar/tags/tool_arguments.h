#pragma once
#include <string>

#include "grammar/schema/json_value.h"
#include "grammar/tags/delimiters.h"
#include "grammar/tags/tag_format.h"
#include "grammar/tags/tool_calls.h"

namespace specdec {

/// The arguments of a call, as a style writes them. Gemma 4's notation writes no names but those of
/// `properties`, sorted, where that and the keywords allow it, and else what `gemma_arguments`
/// does; XML writes no others. Throws GrammarError for a keyword that XML cannot enforce, and for
/// names and values that need a delimiter of the style.
TagFormat tool_arguments(const ToolCallStyle& style, const JsonValue& schema,
                         const std::string& place, const SchemaCheck& check);

}  // namespace specdec
