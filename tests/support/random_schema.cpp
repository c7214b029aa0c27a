#include "tests/support/random_schema.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace specdec {
namespace {

using Type = JsonValue::Type;

constexpr std::array kNames = {"a", "b", "c", "ab", "a\"", "é"};
constexpr std::array kPatterns = {"^a", "b$", "^[ab]*$", "a|c", "^.{2}$", "^a?b", "[^a]", "^$"};
constexpr std::array kNumbers = {"0",  "1",   "2",  "3",   "-1",  "1.0", "1.5", "0.5",
                                 "10", "1e1", "-2", "5.0", "0.1", "12",  "2.25"};
constexpr std::array kStrings = {"", "a", "b", "ab", "abc", "é", "ba", "c\"", "\\", "bb"};

JsonValue text_value(std::string text) { return {Type::kString, std::move(text), {}, {}}; }

JsonValue boolean(bool truth) { return {truth ? Type::kTrue : Type::kFalse, {}, {}, {}}; }

JsonValue list(std::vector<JsonValue> items) { return {Type::kArray, {}, std::move(items), {}}; }

JsonValue object() { return {Type::kObject, {}, {}, {}}; }

bool put(JsonValue& target, const std::string& name, JsonValue value) {
  const bool fresh = target.find(name) == nullptr;
  if (fresh) {
    target.members.push_back({name, std::move(value)});
  }
  return fresh;
}

}  // namespace

std::string RandomSchema::name() { return kNames[below(chance(80) ? 4 : kNames.size())]; }

std::string RandomSchema::pattern() { return kPatterns[below(kPatterns.size())]; }

JsonValue RandomSchema::number_between(int low, int high) {
  const int whole = low + static_cast<int>(below(static_cast<uint32_t>(high - low + 1)));
  return {Type::kNumber, std::to_string(whole), {}, {}};
}

JsonValue RandomSchema::value(int depth) {
  switch (below(depth > 0 ? 9 : 5)) {
    case 0:
      return {};
    case 1:
      return boolean(chance(50));
    case 2:
    case 3:
      return {Type::kNumber, kNumbers[below(kNumbers.size())], {}, {}};
    case 4:
      return text_value(kStrings[below(kStrings.size())]);
    case 5:
    case 6: {
      JsonValue result = list({});
      for (uint32_t more = below(4); more > 0; --more) {
        result.items.push_back(value(depth - 1));
      }
      return result;
    }
    default: {
      JsonValue result = object();
      for (uint32_t more = below(4); more > 0; --more) {
        put(result, name(), value(depth - 1));
      }
      return result;
    }
  }
}

JsonValue RandomSchema::mutated(JsonValue target) {
  const bool inner = target.is(Type::kArray) || target.is(Type::kObject);
  if (!inner || chance(10)) {
    return value(1);
  }
  const uint32_t size = static_cast<uint32_t>(target.items.size() + target.members.size());
  if (size == 0 || chance(25)) {
    if (target.is(Type::kArray)) {
      target.items.push_back(size > 0 && chance(50) ? target.items[below(size)] : value(1));
    } else {
      put(target, name(), value(1));
    }
    return target;
  }
  const uint32_t at = below(size);
  if (chance(20)) {
    target.is(Type::kArray) ? static_cast<void>(target.items.erase(target.items.begin() + at))
                            : static_cast<void>(target.members.erase(target.members.begin() + at));
  } else if (target.is(Type::kArray)) {
    target.items[at] = mutated(std::move(target.items[at]));
  } else {
    target.members[at].value = mutated(std::move(target.members[at].value));
  }
  return target;
}

void RandomSchema::add(JsonValue& schema, const std::string& keyword, JsonValue value) {
  put(schema, keyword, std::move(value));
}

void RandomSchema::maybe(JsonValue& schema, uint32_t percent, const std::string& keyword, int low,
                         int high) {
  if (chance(percent)) {
    add(schema, keyword, number_between(low, high));
  }
}

JsonValue RandomSchema::subschema(int depth, bool apart) {
  if (chance(10) || depth <= 0) {
    return boolean(chance(75));
  }
  if (apart && chance(8)) {
    JsonValue reference = object();
    add(reference, "$ref", text_value(chance(30) ? "#" : "#/$defs/d"));
    return reference;
  }
  JsonValue result = object();
  for (uint32_t groups = chance(70) ? 1 : 2; groups > 0; --groups) {
    switch (below(kKinds)) {
      case 0:
        add_types(result, depth);
        break;
      case 1:
        add_numbers(result);
        break;
      case 2:
        add_strings(result);
        break;
      case 3:
        add_arrays(result, depth);
        break;
      case 4:
        add_objects(result, depth);
        break;
      default:
        add_combined(result, depth);
    }
  }
  return result;
}

JsonValue RandomSchema::subschemas(int depth, uint32_t count, bool apart) {
  JsonValue result = list({});
  for (; count > 0; --count) {
    result.items.push_back(subschema(depth, apart));
  }
  return result;
}

JsonValue RandomSchema::schema(int depth) {
  JsonValue result = subschema(depth, false);
  if (!result.is(Type::kObject)) {
    result = object();
  }
  if (chance(60)) {
    (chance(50) ? add_objects(result, depth) : add_arrays(result, depth));
  }
  JsonValue definitions = object();
  add(definitions, "d", subschema(depth - 1, false));
  add(result, "$defs", std::move(definitions));
  return result;
}

void RandomSchema::add_types(JsonValue& schema, int depth) {
  constexpr std::array kTypes = {"null",   "boolean", "integer", "number",
                                 "string", "array",   "object",  "object"};
  const auto type = [&] { return text_value(kTypes[below(kTypes.size())]); };
  if (chance(60)) {
    add(schema, "type", chance(60) ? type() : list({type(), type()}));
  } else if (chance(30)) {
    add(schema, "const", value(depth));
  } else {
    std::vector<JsonValue> values;
    for (uint32_t more = 1 + below(4); more > 0; --more) {
      values.push_back(value(depth > 2 ? 2 : depth));
    }
    add(schema, "enum", list(std::move(values)));
  }
}

void RandomSchema::add_numbers(JsonValue& schema) {
  maybe(schema, 60, "type", 0, 0);
  if (!schema.members.empty() && schema.members.back().name == "type") {
    schema.members.back().value = text_value(chance(50) ? "integer" : "number");
  }
  maybe(schema, 35, "minimum", -2, 3);
  maybe(schema, 15, "exclusiveMinimum", -2, 3);
  maybe(schema, 35, "maximum", 0, 12);
  maybe(schema, 15, "exclusiveMaximum", 0, 12);
  if (chance(35)) {
    constexpr std::array kUnits = {"1", "2", "0.5", "3", "1.5", "0.1"};
    add(schema, "multipleOf", {Type::kNumber, kUnits[below(kUnits.size())], {}, {}});
  }
}

void RandomSchema::add_strings(JsonValue& schema) {
  if (chance(60)) {
    add(schema, "type", text_value("string"));
  }
  maybe(schema, 35, "minLength", 0, 2);
  maybe(schema, 35, "maxLength", 0, 3);
  if (chance(50)) {
    add(schema, "pattern", text_value(pattern()));
  }
}

void RandomSchema::add_arrays(JsonValue& schema, int depth) {
  if (chance(70)) {
    add(schema, "type", text_value("array"));
  }
  if (chance(50)) {
    add(schema, "items", subschema(depth - 1, true));
  }
  if (chance(25)) {
    add(schema, "prefixItems", subschemas(depth - 1, 1 + below(2), true));
  }
  if (chance(30)) {
    add(schema, "contains", subschema(depth - 1, true));
    maybe(schema, 40, "minContains", 0, 2);
    maybe(schema, 40, "maxContains", 0, 2);
  }
  maybe(schema, 30, "minItems", 0, 3);
  maybe(schema, 40, "maxItems", 0, 4);
  if (chance(25)) {
    add(schema, "uniqueItems", boolean(chance(90)));
  }
  if (chance(12)) {
    add(schema, "unevaluatedItems", subschema(depth - 1, true));
  }
}

void RandomSchema::add_objects(JsonValue& schema, int depth) {
  if (chance(70)) {
    add(schema, "type", text_value("object"));
  }
  if (chance(70)) {
    JsonValue properties = object();
    for (uint32_t more = 1 + below(3); more > 0; --more) {
      put(properties, name(), subschema(depth - 1, true));
    }
    add(schema, "properties", std::move(properties));
  }
  if (chance(40)) {
    JsonValue required = list({text_value(name())});
    if (chance(40)) {
      required.items.push_back(text_value(name()));
    }
    add(schema, "required", std::move(required));
  }
  if (chance(40)) {
    add(schema, "additionalProperties", subschema(depth - 1, true));
  }
  maybe(schema, 20, "minProperties", 0, 3);
  maybe(schema, 25, "maxProperties", 0, 3);
  add_names(schema, depth);
}

void RandomSchema::add_names(JsonValue& schema, int depth) {
  if (chance(25)) {
    JsonValue patterns = object();
    put(patterns, pattern(), subschema(depth - 1, true));
    add(schema, "patternProperties", std::move(patterns));
  }
  if (chance(12)) {
    JsonValue names = object();
    add_strings(names);
    add(schema, "propertyNames", std::move(names));
  }
  if (chance(12)) {
    JsonValue dependent = object();
    put(dependent, name(), list({text_value(name())}));
    add(schema, "dependentRequired", std::move(dependent));
  }
  if (chance(10)) {
    JsonValue dependent = object();
    put(dependent, name(), subschema(depth - 1, false));
    add(schema, "dependentSchemas", std::move(dependent));
  }
  if (chance(12)) {
    add(schema, "unevaluatedProperties", subschema(depth - 1, true));
  }
}

void RandomSchema::add_combined(JsonValue& schema, int depth) {
  constexpr std::array kLists = {"allOf", "anyOf", "oneOf"};
  if (chance(70)) {
    add(schema, kLists[below(3)], subschemas(depth - 1, 2 + below(2), false));
  } else if (chance(50)) {
    add(schema, "not", subschema(depth - 1, false));
  } else {
    add(schema, "if", subschema(depth - 1, false));
    if (chance(80)) {
      add(schema, "then", subschema(depth - 1, false));
    }
    if (chance(60)) {
      add(schema, "else", subschema(depth - 1, false));
    }
  }
}

}  // namespace specdec
