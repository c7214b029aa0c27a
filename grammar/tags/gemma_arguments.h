#pragma once
#include <string>

#include "grammar/schema/json_value.h"
#include "grammar/tags/delimiters.h"
#include "grammar/tags/tag_format.h"
#include "grammar/tags/tool_calls.h"

namespace specdec {

/// Arguments in Gemma 4's notation, all that the schema allows: other names, recursion and every
/// keyword too, in objects whose names come in any order. Throws GrammarError for names and values
/// that the notation cannot write.
TagFormat gemma_arguments(const ToolCallStyle& style, const JsonValue& schema,
                          const std::string& place, const SchemaCheck& check);

}  // namespace specdec
