#include "grammar/schema/schema_choices.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "grammar/interruption.h"
#include "grammar/schema/disjointness_check.h"

namespace specdec {
namespace {

constexpr int kMaxListReferences = 8;  // that lead to a list
/// Of the lists that references of one document copy: further ones are alternatives of their own.
constexpr uint64_t kMaxReferredBytes = 4'000'000;

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

std::optional<SchemaNode> SchemaFormulas::Choices::source_of(SchemaNode node,
                                                             int references) const {
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
  if (source == nullptr || (source->name == "enum" && !source->value.is(JsonValue::Type::kArray))) {
    return std::nullopt;
  }
  if (source->name != "$ref") {
    return node;
  }
  const bool alone = self_.keywords_.find(node, "type") == nullptr;
  return alone && source->value.is(JsonValue::Type::kString)
             ? source_of(self_.document_.resolve(node, source->value.text), references + 1)
             : std::nullopt;
}

std::optional<SchemaFormulas::Choices::Values> SchemaFormulas::Choices::listed(
    SchemaNode source) const {
  const JsonValue* list = self_.keywords_.find(source, "enum");
  const std::string_view keyword = list != nullptr ? "enum" : "const";
  const JsonValue& value = *self_.keywords_.find(source, keyword);
  self_.keywords_.check_text(source, keyword, value);
  self_.keywords_.check_numbers(source, keyword, value);
  Values values = list != nullptr ? value.items : Values{value};
  return keep_type(source, values) ? std::optional(std::move(values)) : std::nullopt;
}

bool SchemaFormulas::Choices::copy_values(SchemaNode source, bool referred) {
  if (referred && self_.referred_bytes_ < kMaxReferredBytes) {
    self_.referred_bytes_ += SchemaKeywords::size_of(self_.document_.value(source));
  }
  if (referred && self_.referred_bytes_ >= kMaxReferredBytes) {
    return false;
  }
  std::optional<Values> list = listed(source);
  if (list) {
    std::ranges::move(*list, std::back_inserter(values_));
  }
  return list.has_value();
}

bool SchemaFormulas::Choices::add_listed(SchemaNode node) {
  Interruption::check();
  const std::optional<SchemaNode> source = source_of(node);
  if (!source) {
    return false;
  }
  const auto known = added_.find(*source);
  return known != added_.end() ? known->second
                               : (added_[*source] = copy_values(*source, *source != node));
}

FormulaId SchemaFormulas::Choices::choose(std::vector<FormulaId> others) {
  if (!values_.empty()) {
    others.push_back(self_.formulas_.equals_any(values_));
  }
  return self_.formulas_.any_of(others);
}

FormulaId SchemaFormulas::Choices::any_of(Subschema here, size_t size) {
  std::vector<FormulaId> others;
  for (size_t i = 0; i < size; ++i) {
    if (!add_listed(self_.document_.child(here.node, "anyOf", i))) {
      others.push_back(self_.below(here, "anyOf", i));
    }
  }
  return choose(std::move(others));
}

/// Only lists that share no value with another part are added.
FormulaId SchemaFormulas::Choices::one_of(Subschema here, size_t size) {
  const std::vector<FormulaId> apart = no_others(here, size);
  std::vector<FormulaId> others;
  for (size_t i = 0; i < size; ++i) {
    if (apart[i] != FormulaStore::kTrue ||
        !add_listed(self_.document_.child(here.node, "oneOf", i))) {
      others.push_back(self_.formulas_.all_of({self_.below(here, "oneOf", i), apart[i]}));
    }
  }
  return choose(std::move(others));
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
