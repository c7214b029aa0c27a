#include "grammar/tags/schema_values.h"

#include <algorithm>
#include <set>
#include <string>

namespace specdec {

bool is_annotation(std::string_view keyword) {
  static const std::set<std::string_view> annotations = {
      "title",    "description", "default",  "examples",  "$schema", "$id",
      "$comment", "deprecated",  "readOnly", "writeOnly", "$defs",   "definitions"};
  return annotations.contains(keyword);
}

bool has_string(const JsonValue& list, std::string_view text) {
  return std::ranges::any_of(list.items, [&](const JsonValue& item) {
    return item.is(JsonValue::Type::kString) && item.text == text;
  });
}

bool is_of_type(const JsonValue& value, std::string_view type) {
  switch (value.type) {
    case JsonValue::Type::kNull:
      return type == "null";
    case JsonValue::Type::kFalse:
    case JsonValue::Type::kTrue:
      return type == "boolean";
    case JsonValue::Type::kNumber:
      return type == "number" ||
             (type == "integer" && value.text.find_first_of(".eE") == std::string::npos);
    case JsonValue::Type::kString:
      return type == "string";
    case JsonValue::Type::kArray:
      return type == "array";
    case JsonValue::Type::kObject:
      return type == "object";
  }
  return false;
}

}  // namespace specdec
