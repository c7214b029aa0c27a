#include "tests/support/naive_validator.h"

#include <algorithm>
#include <regex>
#include <stdexcept>

#include "grammar/regex/regex.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;

const std::set<std::string> kKnown = {"$defs",
                                      "$ref",
                                      "additionalProperties",
                                      "allOf",
                                      "anyOf",
                                      "const",
                                      "contains",
                                      "dependentRequired",
                                      "dependentSchemas",
                                      "else",
                                      "enum",
                                      "exclusiveMaximum",
                                      "exclusiveMinimum",
                                      "if",
                                      "items",
                                      "maxContains",
                                      "maxItems",
                                      "maxLength",
                                      "maxProperties",
                                      "maximum",
                                      "minContains",
                                      "minItems",
                                      "minLength",
                                      "minProperties",
                                      "minimum",
                                      "multipleOf",
                                      "not",
                                      "oneOf",
                                      "pattern",
                                      "patternProperties",
                                      "prefixItems",
                                      "properties",
                                      "propertyNames",
                                      "required",
                                      "then",
                                      "type",
                                      "unevaluatedItems",
                                      "unevaluatedProperties",
                                      "uniqueItems"};

bool matches(const std::string& pattern, const std::string& text) {
  const auto wide = [](const std::string& utf8) {
    const std::u32string points = to_code_points(utf8);
    return std::wstring(points.begin(), points.end());
  };
  try {
    return std::regex_search(wide(text), std::wregex(wide(pattern)));
  } catch (const std::regex_error& error) {
    throw std::invalid_argument(error.what());
  }
}

bool has_type(const JsonValue& value, const std::string& type) {
  static const std::vector<std::pair<std::string, Type>> kTypes = {{"null", Type::kNull},
                                                                   {"number", Type::kNumber},
                                                                   {"string", Type::kString},
                                                                   {"array", Type::kArray},
                                                                   {"object", Type::kObject}};
  if (type == "boolean") {
    return value.is_boolean();
  }
  if (type == "integer") {
    return value.is(Type::kNumber) && exact_number(value.text).get_den() == 1;
  }
  return std::any_of(kTypes.begin(), kTypes.end(), [&](const auto& known) {
    return known.first == type && value.is(known.second);
  });
}

/// False when the count is out of the bounds that the two keywords set.
bool in_range(const JsonValue& schema, const char* least, const char* most, size_t count) {
  const JsonValue* low = schema.find(least);
  const JsonValue* high = schema.find(most);
  const mpq_class number(static_cast<unsigned long>(count));
  return (low == nullptr || number >= exact_number(low->text)) &&
         (high == nullptr || number <= exact_number(high->text));
}

}  // namespace

mpq_class exact_number(const std::string& text) {
  const size_t letter = text.find_first_of("eE");
  std::string digits = text.substr(0, letter);
  const std::string power = letter == std::string::npos ? "0" : text.substr(letter + 1);
  if (power.size() > 4) {
    throw std::invalid_argument("a large exponent");
  }
  long exponent = std::stol(power);
  if (const size_t point = digits.find('.'); point != std::string::npos) {
    exponent -= static_cast<long>(digits.size() - point - 1);
    digits.erase(point, 1);
  }
  mpz_class scale;
  mpz_ui_pow_ui(scale.get_mpz_t(), 10, static_cast<unsigned long>(std::abs(exponent)));
  mpq_class value = exponent < 0 ? mpq_class(mpz_class(digits, 10), scale)
                                 : mpq_class(mpz_class(mpz_class(digits, 10) * scale));
  value.canonicalize();
  return value;
}

bool equal_values(const JsonValue& a, const JsonValue& b) {
  if (a.type != b.type) {
    return false;
  }
  if (a.is(Type::kNumber)) {
    return exact_number(a.text) == exact_number(b.text);
  }
  const bool members = std::all_of(a.members.begin(), a.members.end(), [&](const auto& member) {
    const JsonValue* other = b.find(member.name);
    return other != nullptr && equal_values(member.value, *other);
  });
  return a.text == b.text && a.members.size() == b.members.size() && members &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), equal_values);
}

void NaiveValidator::Result::merge(const Result& other) {
  valid = valid && other.valid;
  if (other.valid) {
    names.insert(other.names.begin(), other.names.end());
    items.insert(other.items.begin(), other.items.end());
  }
}

NaiveValidator::NaiveValidator(const JsonValue& schema) : schema_(schema) { require_known(schema); }

void NaiveValidator::require_known(const JsonValue& schema) const {
  static const std::set<std::string> kMaps = {"$defs", "properties", "patternProperties",
                                              "dependentSchemas"};
  static const std::set<std::string> kData = {"const", "enum"};
  for (const auto& [name, child] : schema.members) {
    if (kKnown.count(name) == 0 || (name == "$ref" && !child.text.starts_with('#')) ||
        (name == "$ref" && child.text.size() > 1 && child.text[1] != '/')) {
      throw std::invalid_argument(name);
    }
    if (kData.count(name) > 0) {
      continue;
    }
    if (kMaps.count(name) > 0) {
      for (const JsonMember& member : child.members) {
        require_known(member.value);
      }
    } else if (child.is(Type::kObject) && name != "dependentRequired") {
      require_known(child);
    }
    for (const JsonValue& item : child.items) {
      require_known(item);
    }
  }
}

const JsonValue& NaiveValidator::find(const std::string& reference) const {
  const JsonValue* at = &schema_;
  for (size_t start = 2; start <= reference.size() && reference.size() > 1;) {
    const size_t end = std::min(reference.find('/', start), reference.size());
    at = at->find(reference.substr(start, end - start));
    if (at == nullptr) {
      throw std::invalid_argument(reference);
    }
    start = end + 1;
  }
  return *at;
}

NaiveValidator::Result NaiveValidator::check(const JsonValue& schema,
                                             const JsonValue& value) const {
  Result result;
  if (schema.is_boolean()) {
    result.valid = schema.is(Type::kTrue);
    return result;
  }
  result.valid = check_plain(schema, value);
  if (value.is(Type::kNumber)) {
    result.valid = check_number(schema, value) && result.valid;
  } else if (value.is(Type::kString)) {
    result.valid = check_string(schema, value) && result.valid;
  } else if (value.is(Type::kArray)) {
    check_array(schema, value, result);
  } else if (value.is(Type::kObject)) {
    check_object(schema, value, result);
  }
  check_in_place(schema, value, result);
  check_unevaluated(schema, value, result);
  return result;
}

bool NaiveValidator::check_plain(const JsonValue& schema, const JsonValue& value) const {
  bool valid = true;
  if (const JsonValue* type = schema.find("type")) {
    valid = type->is(Type::kString)
                ? has_type(value, type->text)
                : std::any_of(type->items.begin(), type->items.end(),
                              [&](const JsonValue& name) { return has_type(value, name.text); });
  }
  if (const JsonValue* values = schema.find("enum")) {
    valid = valid && std::any_of(values->items.begin(), values->items.end(),
                                 [&](const JsonValue& one) { return equal_values(one, value); });
  }
  const JsonValue* constant = schema.find("const");
  return valid && (constant == nullptr || equal_values(*constant, value));
}

bool NaiveValidator::check_number(const JsonValue& schema, const JsonValue& value) const {
  const mpq_class number = exact_number(value.text);
  const auto is = [&](const char* keyword, auto compare) {
    const JsonValue* limit = schema.find(keyword);
    return limit == nullptr || compare(number, exact_number(limit->text));
  };
  const auto multiple = [](const mpq_class& a, const mpq_class& b) {
    return mpq_class(a / b).get_den() == 1;
  };
  return is("minimum", std::greater_equal<>()) && is("maximum", std::less_equal<>()) &&
         is("exclusiveMinimum", std::greater<>()) && is("exclusiveMaximum", std::less<>()) &&
         is("multipleOf", multiple);
}

bool NaiveValidator::check_string(const JsonValue& schema, const JsonValue& value) const {
  const JsonValue* pattern = schema.find("pattern");
  return in_range(schema, "minLength", "maxLength", to_code_points(value.text).size()) &&
         (pattern == nullptr || matches(pattern->text, value.text));
}

void NaiveValidator::check_array(const JsonValue& schema, const JsonValue& value,
                                 Result& result) const {
  const JsonValue* prefix = schema.find("prefixItems");
  const JsonValue* items = schema.find("items");
  const JsonValue* contains = schema.find("contains");
  const size_t told = prefix == nullptr ? 0 : prefix->items.size();
  size_t contained = 0;
  for (size_t i = 0; i < value.items.size(); ++i) {
    const JsonValue* below = i < told ? &prefix->items[i] : items;
    if (below != nullptr) {
      result.valid = holds(*below, value.items[i]) && result.valid;
      result.items.insert(i);
    }
    if (contains != nullptr && holds(*contains, value.items[i])) {
      ++contained;
      result.items.insert(i);
    }
    for (size_t j = 0; j < i && schema.find("uniqueItems") != nullptr; ++j) {
      const bool wanted = schema.find("uniqueItems")->is(Type::kTrue);
      result.valid = result.valid && !(wanted && equal_values(value.items[i], value.items[j]));
    }
  }
  if (contains != nullptr) {
    const bool least = schema.find("minContains") != nullptr || contained > 0;
    result.valid =
        result.valid && least && in_range(schema, "minContains", "maxContains", contained);
  }
  result.valid = result.valid && in_range(schema, "minItems", "maxItems", value.items.size());
}

void NaiveValidator::check_object(const JsonValue& schema, const JsonValue& value,
                                  Result& result) const {
  const JsonValue none;
  const auto part = [&](const char* keyword) -> const JsonValue& {
    const JsonValue* found = schema.find(keyword);
    return found == nullptr ? none : *found;
  };
  for (const auto& [name, child] : value.members) {
    std::vector<const JsonValue*> told;
    if (const JsonValue* property = part("properties").find(name)) {
      told.push_back(property);
    }
    for (const auto& [pattern, property] : part("patternProperties").members) {
      if (matches(pattern, name)) {
        told.push_back(&property);
      }
    }
    if (const JsonValue* other = schema.find("additionalProperties");
        told.empty() && other != nullptr) {
      told.push_back(other);
    }
    for (const JsonValue* property : told) {
      result.valid = holds(*property, child) && result.valid;
      result.names.insert(name);
    }
    if (const JsonValue* names = schema.find("propertyNames")) {
      result.valid = holds(*names, {Type::kString, name, {}, {}}) && result.valid;
    }
    for (const JsonValue& needed : part("dependentRequired").find(name) == nullptr
                                       ? std::vector<JsonValue>()
                                       : part("dependentRequired").find(name)->items) {
      result.valid = value.find(needed.text) != nullptr && result.valid;
    }
  }
  for (const JsonValue& needed : part("required").items) {
    result.valid = value.find(needed.text) != nullptr && result.valid;
  }
  result.valid =
      result.valid && in_range(schema, "minProperties", "maxProperties", value.members.size());
}

void NaiveValidator::check_in_place(const JsonValue& schema, const JsonValue& value,
                                    Result& result) const {
  if (const JsonValue* reference = schema.find("$ref")) {
    result.merge(check(find(reference->text), value));
  }
  for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
    const JsonValue* list = schema.find(keyword);
    Result merged;
    size_t held = 0;
    for (const JsonValue& part : list == nullptr ? std::vector<JsonValue>() : list->items) {
      const Result one = check(part, value);
      held += one.valid ? 1 : 0;
      if (one.valid) {
        merged.merge(one);
      }
    }
    if (list != nullptr) {
      const std::string name = keyword;
      merged.valid = name == "allOf"   ? held == list->items.size()
                     : name == "anyOf" ? held > 0
                                       : held == 1;
      result.merge(merged);
    }
  }
  if (const JsonValue* no = schema.find("not")) {
    result.valid = !holds(*no, value) && result.valid;
  }
  if (const JsonValue* condition = schema.find("if")) {
    const Result one = check(*condition, value);
    if (one.valid) {
      result.merge(one);
    }
    if (const JsonValue* then = schema.find(one.valid ? "then" : "else")) {
      result.merge(check(*then, value));
    }
  }
  if (const JsonValue* dependent = schema.find("dependentSchemas"); dependent != nullptr) {
    for (const auto& [name, part] : dependent->members) {
      if (value.find(name) != nullptr) {
        result.merge(check(part, value));
      }
    }
  }
}

void NaiveValidator::check_unevaluated(const JsonValue& schema, const JsonValue& value,
                                       Result& result) const {
  if (const JsonValue* rest = schema.find("unevaluatedItems")) {
    for (size_t i = 0; i < value.items.size(); ++i) {
      if (result.items.insert(i).second) {
        result.valid = holds(*rest, value.items[i]) && result.valid;
      }
    }
  }
  if (const JsonValue* rest = schema.find("unevaluatedProperties")) {
    for (const auto& [name, child] : value.members) {
      if (result.names.insert(name).second) {
        result.valid = holds(*rest, child) && result.valid;
      }
    }
  }
}

}  // namespace specdec
