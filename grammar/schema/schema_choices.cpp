#include "grammar/schema/schema_choices.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "grammar/schema/disjointness_check.h"

namespace specdec {
namespace {

constexpr int kMaxListReferences = 8;  // that lead to a list

/// Keywords that may stand beside a list: they say nothing about values.
bool is_beside_list(std::string_view keyword) {
  constexpr std::array<std::string_view, 11> kNames = {
      "title",    "description", "default",   "examples", "$comment",           "deprecated",
      "readOnly", "writeOnly",   "enumNames", "example",  "markdownDescription"};
  return keyword.starts_with("x-") || std::ranges::find(kNames, keyword) != kNames.end();
}

/// Whether a value has a type; nothing where that takes arithmetic or depends on the draft.
std::optional<bool> has_type(const JsonValue& value, std::string_view type) {
  using enum JsonValue::Type;
  switch (value.type) {
    case kNull:
      return type == "null";
    case kFalse:
    case kTrue:
      return type == "boolean";
    case kString:
      return type == "string";
    case kArray:
      return type == "array";
    case kObject:
      return type == "object";
    case kNumber:
      break;
  }
  const bool plain = value.text.find_first_of(".eE") == std::string::npos;
  if (type == "integer" && !plain) {
    return std::nullopt;
  }
  return type == "number" || type == "integer";
}

}  // namespace

bool SchemaFormulas::Choices::keep_type(SchemaNode node, Values& values) const {
  const JsonValue* type = self_.keywords_.find(node, "type");
  if (type == nullptr) {
    return true;
  }
  constexpr std::array<std::string_view, 7> kTypes = {"null",   "boolean", "integer", "number",
                                                      "string", "array",   "object"};
  if (!type->is(JsonValue::Type::kString) ||
      std::ranges::find(kTypes, type->text) == kTypes.end()) {
    return false;
  }
  const bool is_written =
      type->text == "integer" && self_.keywords_.is_older(node, SchemaDraft::kDraft6);
  if (is_written && std::ranges::any_of(values, [](const JsonValue& value) {
        return value.is(JsonValue::Type::kNumber);
      })) {
    return false;  // draft 4 tells integers by how they are written
  }
  Values kept;
  for (JsonValue& value : values) {
    const std::optional<bool> fits = has_type(value, type->text);
    if (!fits) {
      return false;
    }
    if (*fits) {
      kept.push_back(std::move(value));
    }
  }
  values = std::move(kept);
  return true;
}

std::optional<SchemaFormulas::Choices::Values> SchemaFormulas::Choices::listed(SchemaNode node,
                                                                               int references) {
  const JsonValue& schema = self_.document_.value(node);
  if (!schema.is(JsonValue::Type::kObject) || !self_.document_.has_assertions(node) ||
      references > kMaxListReferences) {
    return std::nullopt;
  }
  const JsonMember* source = nullptr;  // the keyword that tells the values
  for (const JsonMember& member : schema.members) {
    const bool tells =
        member.name == "enum" || member.name == "$ref" ||
        (member.name == "const" && !self_.keywords_.is_older(node, SchemaDraft::kDraft6));
    if (tells && source == nullptr) {
      source = &member;
    } else if (tells || (member.name != "type" && !is_beside_list(member.name))) {
      return std::nullopt;
    }
  }
  if (source == nullptr) {
    return std::nullopt;
  }
  if (source->name == "$ref") {
    const bool alone = self_.keywords_.find(node, "type") == nullptr;
    return alone && source->value.is(JsonValue::Type::kString)
               ? listed(self_.document_.resolve(node, source->value.text), references + 1)
               : std::nullopt;
  }
  if (source->name == "enum" && !source->value.is(JsonValue::Type::kArray)) {
    return std::nullopt;
  }
  self_.keywords_.check_text(node, source->name, source->value);
  self_.keywords_.check_numbers(node, source->name, source->value);
  Values values = source->name == "enum" ? source->value.items : Values{source->value};
  return keep_type(node, values) ? std::optional(std::move(values)) : std::nullopt;
}

FormulaId SchemaFormulas::Choices::choose(std::vector<FormulaId> others, const Values& values) {
  if (!values.empty()) {
    others.push_back(self_.formulas_.equals_any(values));
  }
  return self_.formulas_.any_of(others);
}

FormulaId SchemaFormulas::Choices::any_of(Subschema here, size_t size) {
  std::vector<FormulaId> others;
  Values values;
  for (size_t i = 0; i < size; ++i) {
    if (auto list = listed(self_.document_.child(here.node, "anyOf", i))) {
      std::ranges::move(*list, std::back_inserter(values));
    } else {
      others.push_back(self_.below(here, "anyOf", i));
    }
  }
  return choose(std::move(others), values);
}

FormulaId SchemaFormulas::Choices::one_of(Subschema here, size_t size) {
  const std::vector<FormulaId> apart = no_others(here, size);
  std::vector<FormulaId> others;
  Values values;  // of lists that share none with another part
  for (size_t i = 0; i < size; ++i) {
    auto list = apart[i] == FormulaStore::kTrue
                    ? listed(self_.document_.child(here.node, "oneOf", i))
                    : std::nullopt;
    if (list) {
      std::ranges::move(*list, std::back_inserter(values));
    } else {
      others.push_back(self_.formulas_.all_of({self_.below(here, "oneOf", i), apart[i]}));
    }
  }
  return choose(std::move(others), values);
}

std::vector<FormulaId> SchemaFormulas::Choices::no_others(Subschema here, size_t size) {
  std::vector<FormulaId> result;
  for (const std::vector<size_t>& overlaps :
       DisjointnessCheck(self_).overlaps_of_one_of(here, size)) {
    std::vector<FormulaId> others;
    for (const size_t other : overlaps) {
      others.push_back(self_.formulas_.negate(self_.below(here, "oneOf", other)));
    }
    result.push_back(self_.formulas_.all_of(others));
  }
  return result;
}

}  // namespace specdec
