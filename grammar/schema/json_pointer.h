#pragma once
#include <string>
#include <string_view>

#include "grammar/schema/json_value.h"

namespace specdec {

// JSON pointers (RFC 6901): "/properties/a~1b/0".

/// One step of a pointer as it is written, and as what it names.
std::string escape_pointer(std::string_view name);
std::string unescape_pointer(std::string_view step);

/// The part of a value that one step names, or nullptr.
const JsonValue* pointer_step(const JsonValue& value, const std::string& step);

}  // namespace specdec
