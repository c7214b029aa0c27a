#include "grammar/tags/schema_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "grammar/schema/json_pointer.h"

namespace specdec {
namespace {

/// Appends the pointer from a value to a part of it; false when it is none.
bool find_part(const JsonValue& value, const JsonValue& part, std::string& pointer) {
  if (&value == &part) {
    return true;
  }
  const size_t length = pointer.size();
  const auto below = [&](const JsonValue& child, const std::string& step) {
    pointer += "/" + step;
    const bool found = find_part(child, part, pointer);
    pointer.resize(found ? pointer.size() : length);
    return found;
  };
  for (size_t i = 0; i < value.items.size(); ++i) {
    if (below(value.items[i], std::to_string(i))) {
      return true;
    }
  }
  return std::ranges::any_of(value.members, [&](const JsonMember& member) {
    return below(member.value, escape_pointer(member.name));
  });
}

/// A text as a fragment of a URI has it.
std::string percent_encode(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '/' || c == '~'
               ? std::string(1, c)
               : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace

JsonValue text_value(std::string text) {
  return {.type = JsonValue::Type::kString, .text = std::move(text), .items = {}, .members = {}};
}

bool may_hold_schemas(std::string_view keyword) {
  return keyword != "not" && keyword != "if" && keyword != "dependentRequired" &&
         restricted_type(keyword);
}

bool is_map_of_schemas(std::string_view keyword) {
  static const std::set<std::string_view> maps = {"properties",  "patternProperties",
                                                  "$defs",       "dependentSchemas",
                                                  "definitions", "dependencies"};
  return maps.contains(keyword);
}

std::optional<std::string_view> restricted_type(std::string_view keyword) {
  static const std::map<std::string_view, std::set<std::string_view>> keywords = {
      {"",
       {"type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref",
        "$dynamicRef", "$recursiveRef"}},
      {"string", {"minLength", "maxLength", "pattern", "format"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
      {"array",
       {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems",
        "contains", "minContains", "maxContains", "unevaluatedItems"}},
      {"object",
       {"properties", "patternProperties", "additionalProperties", "propertyNames", "required",
        "minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies",
        "unevaluatedProperties"}}};
  for (const auto& [type, names] : keywords) {
    if (names.contains(keyword)) {
      return type;
    }
  }
  return std::nullopt;
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

bool refers(const JsonValue& value) {
  return std::ranges::any_of(value.items, refers) ||
         std::ranges::any_of(value.members, [](const JsonMember& member) {
           return member.name == "$ref" || member.name == "$dynamicRef" ||
                  member.name == "$recursiveRef" || refers(member.value);
         });
}

JsonValue part_of_document(const JsonValue& root, const JsonValue& wanted) {
  std::string part;
  (void)find_part(root, wanted, part);
  JsonValue whole = root;
  const JsonValue* known = whole.find("$id");
  const std::string id = known == nullptr ? "specdec:parameters" : known->text;
  if (known == nullptr) {
    whole.members.push_back({"$id", text_value(id)});
  }
  JsonValue definitions = {
      .type = JsonValue::Type::kObject, .text = "", .items = {}, .members = {}};
  definitions.members.push_back({"parameters", std::move(whole)});
  JsonValue outer = {.type = JsonValue::Type::kObject, .text = "", .items = {}, .members = {}};
  outer.members.push_back({"$ref", text_value(id + "#" + percent_encode(part))});
  outer.members.push_back({"$defs", std::move(definitions)});
  return outer;
}

}  // namespace specdec
