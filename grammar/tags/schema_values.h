#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "grammar/schema/json_value.h"

namespace specdec {

/// A JSON string.
JsonValue text_value(std::string text);
/// True for keywords, beside maps of schemas, whose schemas values may have to satisfy.
bool may_hold_schemas(std::string_view keyword);
/// True for keywords whose members are schemas by names or patterns.
bool is_map_of_schemas(std::string_view keyword);
/// The type of the values that a keyword restricts, number for integers too; "" for a keyword about
/// all of them. Nothing for what restricts none: annotations and names that JSON Schema does not
/// have.
std::optional<std::string_view> restricted_type(std::string_view keyword);
/// True when a list has that text.
bool has_string(const JsonValue& list, std::string_view text);
/// True for a value of that type of a schema; integers are those without point and exponent.
bool is_of_type(const JsonValue& value, std::string_view type);

/// True where a reference is in it.
bool refers(const JsonValue& value);
/// The schema of a part of the root, in which references mean what they mean there: the root is a
/// document of its own below it.
JsonValue part_of_document(const JsonValue& root, const JsonValue& wanted);

}  // namespace specdec
