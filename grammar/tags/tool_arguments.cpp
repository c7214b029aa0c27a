#include "grammar/tags/tool_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "grammar/interruption.h"
#include "grammar/tags/gemma_arguments.h"
#include "grammar/tags/gemma_values_automaton.h"
#include "grammar/tags/schema_values.h"
#include "grammar/tags/tag_place.h"
#include "grammar/tags/tool_schemas.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;
using Notation = ToolCallStyle::Notation;

constexpr size_t kMaxValues = 20'000;  // of the arguments of one tool
constexpr std::string_view kXmlEnd = "\n</parameter>\n";

/// The types that a schema names; none where it names none.
std::set<std::string> types_of(const JsonValue& schema) {
  std::set<std::string> types;
  const JsonValue* type = schema.find("type");
  if (type != nullptr && type->is(Type::kString)) {
    types.insert(type->text);
  } else if (type != nullptr) {
    for (const JsonValue& each : type->items) {
      types.insert(each.text);
    }
  }
  return types;
}

/// Whether some value is of two types, one of each set: integers are numbers.
bool overlap(const std::set<std::string>& some, const std::set<std::string>& others) {
  return std::ranges::any_of(some, [&](const std::string& type) {
    return others.contains(type) || (type == "integer" && others.contains("number")) ||
           (type == "number" && others.contains("integer"));
  });
}

/// Translates a schema into the formats of its values.
class ArgumentWriter {
 public:
  ArgumentWriter(const ToolCallStyle& style, const JsonValue& root, std::string place,
                 const SchemaCheck& check)
      : style_(style), schemas_(style, root, std::move(place)), check_(check) {}

  TagFormat arguments() const {
    const JsonValue& schema = resolved(schemas_.root(), "", 0);
    return style_.notation == Notation::kXml ? parameters(schema) : value(schema, "", 0);
  }

 private:
  using Property = ToolSchemas::Property;

  [[noreturn]] void fail(const std::string& pointer, const std::string& what) const {
    schemas_.fail(pointer, what);
  }
  void check_keywords(const JsonValue& schema, const std::set<std::string_view>& known,
                      const std::string& pointer, std::string_view type = "") const {
    schemas_.check_keywords(schema, known, pointer, type);
  }
  const JsonValue& resolved(const JsonValue& schema, const std::string& pointer, int depth) const {
    return schemas_.resolved(schema, pointer, depth);
  }
  TagFormat value(const JsonValue& schema, const std::string& pointer, int depth) const;
  TagFormat any_value(const JsonValue& given, const std::string& pointer, int depth) const;
  TagFormat value_of_type(const JsonValue& schema, const std::string& type,
                          const std::string& pointer, int depth) const;
  TagFormat one_of_values(const std::vector<JsonValue>& values, const JsonValue* type,
                          const std::string& pointer) const;
  TagFormat one_of_schemas(const JsonValue& schema, const char* keyword, const std::string& pointer,
                           int depth) const;
  TagFormat string(const JsonValue& schema, const std::string& pointer) const;
  TagFormat scalar(const JsonValue& schema, const std::string& type,
                   const std::string& pointer) const;
  TagFormat json(const JsonValue& schema, const std::string& pointer) const;
  TagFormat array(const JsonValue& schema, const std::string& pointer, int depth) const;
  TagFormat object(const JsonValue& schema, const std::string& pointer, int depth) const;
  TagFormat parameters(const JsonValue& schema) const;
  TagFormat all_of_schemas(const JsonValue& schema, const std::string& pointer, int depth) const;
  std::optional<uint64_t> count(const JsonValue& schema, const char* keyword,
                                const std::string& pointer) const;
  TagFormat quoted(TagFormat text) const;

  const ToolCallStyle& style_;
  ToolSchemas schemas_;
  const SchemaCheck& check_;
  mutable size_t values_ = 0;  ///< so far
};

TagFormat ArgumentWriter::value(const JsonValue& schema, const std::string& pointer,
                                int depth) const {
  Interruption::check();
  if (++values_ > kMaxValues) {
    fail(pointer, fmt::format("more than {} values of one tool cannot be written; give fewer "
                              "properties, or fewer references to one definition",
                              kMaxValues));
  }
  return any_value(schema, pointer, depth);
}

TagFormat ArgumentWriter::any_value(const JsonValue& given, const std::string& pointer,
                                    int depth) const {
  const JsonValue& schema = resolved(given, pointer, depth);
  const JsonValue* type = schema.find("type");
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (schema.find(keyword) != nullptr) {
      return one_of_schemas(schema, keyword, pointer, depth);
    }
  }
  if (schema.find("allOf") != nullptr) {
    return all_of_schemas(schema, pointer, depth);
  }
  const std::string_view type_text = type == nullptr ? std::string_view() : type->text;
  if (const JsonValue* listed = schema.find("enum")) {
    check_keywords(schema, {"enum", "type"}, pointer, type_text);
    return one_of_values(listed->items, type, pointer);
  }
  if (const JsonValue* only = schema.find("const")) {
    check_keywords(schema, {"const", "type"}, pointer, type_text);
    return one_of_values({*only}, type, pointer);
  }
  if (type == nullptr) {
    fail(pointer, "a value without 'type' cannot be written");
  }
  if (type->is(Type::kString)) {
    return value_of_type(schema, type->text, pointer, depth);
  }
  std::vector<TagFormat> values;
  for (const JsonValue& each : type->items) {
    values.push_back(value_of_type(schema, each.text, pointer, depth));
  }
  if (values.empty()) {
    fail(pointer + "/type", "an empty list cannot be written");
  }
  return or_format(std::move(values));
}

/// Format of an allOf: of objects, or of one schema, which some write for a $ref with a description
/// beside it.
TagFormat ArgumentWriter::all_of_schemas(const JsonValue& schema, const std::string& pointer,
                                         int depth) const {
  const JsonValue& all = *schema.find("allOf");
  if (schemas_.is_object(schema, pointer, depth)) {
    return value_of_type(schema, "object", pointer, depth);
  }
  if (all.items.size() != 1) {
    fail(pointer, "an allOf of several schemas that are not all objects cannot be written");
  }
  check_keywords(schema, {"allOf"}, pointer);
  return value(all.items[0], pointer + "/allOf/0", depth + 1);
}

TagFormat ArgumentWriter::one_of_schemas(const JsonValue& schema, const char* keyword,
                                         const std::string& pointer, int depth) const {
  check_keywords(schema, {keyword}, pointer);
  std::vector<TagFormat> values;
  std::set<std::string> types;  // of those before
  const bool is_one_of = std::string_view(keyword) == "oneOf";
  const JsonValue& list = *schema.find(keyword);
  for (size_t i = 0; i < list.items.size(); ++i) {
    const std::string here = fmt::format("{}/{}/{}", pointer, keyword, i);
    values.push_back(value(list.items[i], here, depth + 1));
    std::set<std::string> own = types_of(resolved(list.items[i], here, depth));
    if (is_one_of && (own.empty() || overlap(own, types))) {
      fail(here, "oneOf of types that overlap cannot be enforced");
    }
    types.merge(own);
  }
  if (values.empty()) {
    fail(pointer, fmt::format("this {} cannot be enforced", keyword));
  }
  return or_format(std::move(values));
}

TagFormat ArgumentWriter::value_of_type(const JsonValue& schema, const std::string& type,
                                        const std::string& pointer, int depth) const {
  if (type == "string") {
    return string(schema, pointer);
  }
  if (type == "array" || type == "object") {
    if (style_.notation == Notation::kXml) {
      return json(schema, pointer);
    }
    return type == "array" ? array(schema, pointer, depth) : object(schema, pointer, depth);
  }
  return scalar(schema, type, pointer);
}

TagFormat ArgumentWriter::quoted(TagFormat text) const {
  if (style_.notation == Notation::kXml) {
    return text;
  }
  TagFormat tag = {.kind = TagFormat::Kind::kTag};
  tag.parts = {token_or_text_format(std::string(kGemmaQuote)), std::move(text),
               token_or_text_format(std::string(kGemmaQuote))};
  return tag;
}

TagFormat ArgumentWriter::one_of_values(const std::vector<JsonValue>& values, const JsonValue* type,
                                        const std::string& pointer) const {
  std::vector<TagFormat> formats;
  for (const JsonValue& value : values) {
    const bool fits =
        type == nullptr || (type->is(Type::kString) && is_of_type(value, type->text)) ||
        std::ranges::any_of(type->items,
                            [&](const JsonValue& each) { return is_of_type(value, each.text); });
    if (!fits) {
      continue;
    }
    if (value.is(Type::kArray) || value.is(Type::kObject)) {
      fail(pointer, "an enum or const of arrays or objects cannot be written");
    }
    const std::string_view end = delimiter_in(style_, value.text);
    if (!end.empty()) {
      fail(pointer,
           fmt::format("the value {} contains '{}', which ends values: it cannot be written",
                       to_json(value), end));
    }
    formats.push_back(value.is(Type::kString) ? quoted(text_format(value.text))
                                              : text_format(to_json(value)));
  }
  if (formats.empty()) {
    fail(pointer, "no value is allowed, so that none can be written");
  }
  return or_format(std::move(formats));
}

TagFormat ArgumentWriter::string(const JsonValue& schema, const std::string& pointer) const {
  check_keywords(schema, {"type", "minLength", "maxLength", "pattern", "format"}, pointer,
                 "string");
  JsonValue strings = {.type = Type::kObject, .text = "", .items = {}, .members = {}};
  for (const char* keyword : {"minLength", "maxLength", "pattern", "format"}) {
    if (const JsonValue* found = schema.find(keyword)) {
      strings.members.push_back({keyword, *found});
    }
  }
  if (strings.members.empty()) {
    TagFormat free = free_format(style_.delimiters);
    free.triggers = {style_.notation == Notation::kXml
                         ? std::string(kXmlEnd.substr(0, kXmlEnd.size() - 1))
                         : std::string(kGemmaQuote)};
    return quoted(std::move(free));
  }
  JsonValue schema_of_texts = at_place("#" + schemas_.place(), [&] {
    return at_place("#" + pointer, [&] { return without_delimiters(style_, strings, check_); });
  });
  TagFormat plain = grammar_format({.type = "plain_string", .schema = std::move(schema_of_texts)});
  plain.place = schemas_.place() + pointer;
  return quoted(std::move(plain));
}

TagFormat ArgumentWriter::scalar(const JsonValue& schema, const std::string& type,
                                 const std::string& pointer) const {
  static const std::set<std::string_view> kBounds = {
      "type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
  check_keywords(schema, kBounds, pointer, type);
  JsonValue one = schema;
  std::erase_if(one.members, [](const JsonMember& member) {
    return member.name == "type" || !kBounds.contains(member.name);
  });
  one.members.push_back(
      {"type", {.type = Type::kString, .text = type, .items = {}, .members = {}}});
  return schema_format(std::move(one), schemas_.place() + pointer);
}

TagFormat ArgumentWriter::json(const JsonValue& schema, const std::string& pointer) const {
  at_place(schemas_.place() + pointer, [&] { check_delimiters(style_, schema, check_); });
  if (!refers(schema)) {
    return schema_format(values_without_delimiters(style_, schema), schemas_.place() + pointer,
                         style_.whitespace);
  }
  return schema_format(values_without_delimiters(style_, part_of_document(schemas_.root(), schema)),
                       schemas_.place(), style_.whitespace);
}

std::optional<uint64_t> ArgumentWriter::count(const JsonValue& schema, const char* keyword,
                                              const std::string& pointer) const {
  const JsonValue* found = schema.find(keyword);
  if (found == nullptr) {
    return std::nullopt;
  }
  uint64_t number = 0;
  const char* end = found->text.data() + found->text.size();
  const auto read = std::from_chars(found->text.data(), end, number);
  if (!found->is(Type::kNumber) || read.ec != std::errc() || read.ptr != end) {
    fail(pointer + "/" + keyword, "a count that is no whole number cannot be enforced");
  }
  return number;
}

TagFormat ArgumentWriter::array(const JsonValue& schema, const std::string& pointer,
                                int depth) const {
  check_keywords(schema, {"type", "items", "minItems", "maxItems"}, pointer, "array");
  const JsonValue* items = schema.find("items");
  if (items == nullptr) {
    fail(pointer, "an array without 'items' cannot be written");
  }
  TagFormat list = {.kind = TagFormat::Kind::kRepeat, .place = schemas_.place() + pointer};
  list.parts.push_back(value(*items, pointer + "/items", depth + 1));
  list.separator.push_back(text_format(","));
  list.min = count(schema, "minItems", pointer).value_or(0);
  list.max = count(schema, "maxItems", pointer);
  return sequence_format(parts_of(text_format("["), std::move(list), text_format("]")));
}

/// Format of an object, its properties in the order of the chat template: sorted, small and capital
/// letters alike.
TagFormat ArgumentWriter::object(const JsonValue& schema, const std::string& pointer,
                                 int depth) const {
  std::optional<std::vector<Property>> listed = schemas_.properties(schema, pointer);
  if (!listed) {
    return gemma_arguments(style_, parse_json(R"({"type": "object"})", "object"),
                           schemas_.place() + pointer, check_);
  }
  std::vector<Property> all = std::move(*listed);
  std::ranges::stable_sort(all, {}, [](const Property& property) {
    std::string low = property.name;
    std::ranges::transform(low, low.begin(), [](unsigned char c) { return std::tolower(c); });
    return low;
  });
  std::vector<TagFormat> members;
  for (const Property& property : all) {
    members.push_back(sequence_format(parts_of(
        text_format(property.name + ":"), value(*property.schema, property.pointer, depth + 1))));
  }
  TagFormat list = {.kind = TagFormat::Kind::kMembers, .parts = std::move(members)};
  list.separator.push_back(text_format(","));
  for (const Property& property : all) {
    list.required.push_back(property.required);
  }
  return sequence_format(parts_of(text_format("{"), std::move(list), text_format("}")));
}

TagFormat ArgumentWriter::parameters(const JsonValue& schema) const {
  std::vector<TagFormat> parts;
  const std::optional<std::vector<Property>> listed = schemas_.properties(schema, "");
  for (const Property& property : listed.value_or(std::vector<Property>())) {
    TagFormat tag = {.kind = TagFormat::Kind::kTag};
    tag.parts = {text_format(fmt::format("<parameter={}>\n", property.name)),
                 value(*property.schema, property.pointer, 1), text_format(std::string(kXmlEnd))};
    parts.push_back(property.required ? std::move(tag) : optional_format(std::move(tag)));
  }
  return sequence_format(std::move(parts));
}

}  // namespace

TagFormat tool_arguments(const ToolCallStyle& style, const JsonValue& schema,
                         const std::string& place, const SchemaCheck& check) {
  if (style.notation == Notation::kJson || schema.is(Type::kFalse)) {
    at_place(place, [&] { check_delimiters(style, schema, check); });
    return schema_format(schema, place, style.whitespace);
  }
  const ArgumentWriter writer(style, schema, place, check);
  if (style.notation != Notation::kGemma) {
    return writer.arguments();
  }
  try {
    return writer.arguments();
  } catch (const GrammarError&) {  // a keyword that parts in a fixed order cannot enforce
    return gemma_arguments(style, schema, place, check);
  }
}

}  // namespace specdec
