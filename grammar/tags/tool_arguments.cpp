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
#include "grammar/schema/json_pointer.h"
#include "grammar/schema/uri.h"
#include "grammar/tags/schema_values.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;
using Notation = ToolCallStyle::Notation;

constexpr int kMaxDepth = 32;          // of values in values
constexpr size_t kMaxValues = 20'000;  // of the arguments of one tool
constexpr std::string_view kGemmaQuote = "<|\"|>";

/// Translates a schema into the formats of its values.
class ArgumentWriter {
 public:
  ArgumentWriter(const ToolCallStyle& style, const JsonValue& root, std::string place)
      : style_(style), root_(root), place_(std::move(place)) {}

  TagFormat arguments() const {
    const JsonValue& schema = resolved(root_, "", 0);
    return style_.notation == Notation::kXml ? parameters(schema) : value(schema, "", 0);
  }

 private:
  struct Property {
    std::string name;
    const JsonValue* schema;
    bool required;
  };

  [[noreturn]] void fail(const std::string& pointer, const std::string& what) const {
    throw GrammarError(fmt::format("#{}: {}{} in the style '{}'", place_,
                                   pointer.empty() ? "" : fmt::format("#{}: ", pointer), what,
                                   style_.name));
  }

  /// Refuses keywords that are neither known nor annotations.
  void check_keywords(const JsonValue& schema, const std::set<std::string_view>& known,
                      const std::string& pointer) const {
    for (const JsonMember& member : schema.members) {
      if (!known.contains(member.name) && !is_annotation(member.name)) {
        fail(pointer, fmt::format("the keyword '{}' cannot be enforced", member.name));
      }
    }
  }

  const JsonValue& resolved(const JsonValue& schema, const std::string& pointer, int depth) const;
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
  std::vector<Property> properties(const JsonValue& schema, const std::string& pointer) const;
  std::optional<uint64_t> count(const JsonValue& schema, const char* keyword,
                                const std::string& pointer) const;
  TagFormat quoted(TagFormat text) const;

  const ToolCallStyle& style_;
  const JsonValue& root_;
  std::string place_;
  mutable size_t values_ = 0;  ///< so far
};

/// What a $ref within the parameters means.
const JsonValue& ArgumentWriter::resolved(const JsonValue& schema, const std::string& pointer,
                                          int depth) const {
  if (depth > kMaxDepth) {
    fail(pointer, fmt::format("values within values more than {} deep, or without an end, cannot "
                              "be written",
                              kMaxDepth));
  }
  const JsonValue* ref = schema.find("$ref");
  if (ref == nullptr) {
    return schema;
  }
  check_keywords(schema, {"$ref", "type"}, pointer);
  const JsonValue* found = ref->text.starts_with('#') ? &root_ : nullptr;
  const std::string decoded = percent_decode(ref->text);
  std::string_view rest = std::string_view(decoded).substr(std::min<size_t>(1, decoded.size()));
  while (found != nullptr && rest.starts_with('/')) {
    rest.remove_prefix(1);
    const std::string_view name = rest.substr(0, rest.find('/'));
    found = pointer_step(*found, unescape_pointer(name));
    rest.remove_prefix(name.size());
  }
  if (found == nullptr || !rest.empty()) {
    fail(pointer + "/$ref", fmt::format("'{}' is not found among the parameters", ref->text));
  }
  const JsonValue& target = resolved(*found, pointer, depth + 1);
  const JsonValue* type = schema.find("type");
  const JsonValue* other = target.find("type");
  if (type != nullptr && (other == nullptr || to_json(*type) != to_json(*other))) {
    fail(pointer, "a 'type' other than that of the '$ref' beside it cannot be enforced");
  }
  return target;
}

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
  if (const JsonValue* listed = schema.find("enum")) {
    check_keywords(schema, {"enum", "type"}, pointer);
    return one_of_values(listed->items, type, pointer);
  }
  if (const JsonValue* only = schema.find("const")) {
    check_keywords(schema, {"const", "type"}, pointer);
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

TagFormat ArgumentWriter::one_of_schemas(const JsonValue& schema, const char* keyword,
                                         const std::string& pointer, int depth) const {
  check_keywords(schema, {keyword}, pointer);
  std::vector<TagFormat> values;
  std::set<std::string> types;
  const JsonValue& list = *schema.find(keyword);
  for (size_t i = 0; i < list.items.size(); ++i) {
    const std::string here = fmt::format("{}/{}/{}", pointer, keyword, i);
    values.push_back(value(list.items[i], here, depth + 1));
    const JsonValue* type = resolved(list.items[i], here, depth).find("type");
    const bool is_new = type != nullptr && types.insert(type->text).second;
    if (std::string_view(keyword) == "oneOf" && !is_new) {
      fail(here, "oneOf of one type twice cannot be enforced");
    }
  }
  if (values.empty() || (types.contains("number") && types.contains("integer") &&
                         std::string_view(keyword) == "oneOf")) {
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
    const std::string_view end =
        style_.notation == Notation::kXml ? std::string_view("</parameter>") : kGemmaQuote;
    if (value.is(Type::kString) && value.text.find(end) != std::string::npos) {
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
  check_keywords(schema, {"type", "minLength", "maxLength", "pattern", "format"}, pointer);
  JsonValue strings = {.type = Type::kObject, .text = "", .items = {}, .members = {}};
  for (const char* keyword : {"minLength", "maxLength", "pattern", "format"}) {
    if (const JsonValue* found = schema.find(keyword)) {
      strings.members.push_back({keyword, *found});
    }
  }
  if (strings.members.empty()) {
    return quoted(free_format());
  }
  strings.members.push_back(
      {"type", {.type = Type::kString, .text = "string", .items = {}, .members = {}}});
  TagFormat plain = grammar_format({.type = "plain_string", .schema = std::move(strings)});
  plain.place = place_ + pointer;
  return quoted(std::move(plain));
}

TagFormat ArgumentWriter::scalar(const JsonValue& schema, const std::string& type,
                                 const std::string& pointer) const {
  JsonValue one = schema;
  std::erase_if(one.members, [](const JsonMember& member) {
    return member.name == "type" || is_annotation(member.name);
  });
  check_keywords(one, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
                 pointer);
  one.members.push_back(
      {"type", {.type = Type::kString, .text = type, .items = {}, .members = {}}});
  return schema_format(std::move(one), place_ + pointer);
}

TagFormat ArgumentWriter::json(const JsonValue& schema, const std::string& pointer) const {
  if (!refers(schema)) {
    return schema_format(schema, place_ + pointer, style_.whitespace);
  }
  return schema_format(part_of_document(root_, schema), place_, style_.whitespace);
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
  check_keywords(schema, {"type", "items", "minItems", "maxItems"}, pointer);
  const JsonValue* items = schema.find("items");
  if (items == nullptr) {
    fail(pointer, "an array without 'items' cannot be written");
  }
  TagFormat list = {.kind = TagFormat::Kind::kRepeat, .place = place_ + pointer};
  list.parts.push_back(value(*items, pointer + "/items", depth + 1));
  list.separator.push_back(text_format(","));
  list.min = count(schema, "minItems", pointer).value_or(0);
  list.max = count(schema, "maxItems", pointer);
  return sequence_format(parts_of(text_format("["), std::move(list), text_format("]")));
}

std::vector<ArgumentWriter::Property> ArgumentWriter::properties(const JsonValue& schema,
                                                                 const std::string& pointer) const {
  check_keywords(schema, {"type", "properties", "required", "additionalProperties"}, pointer);
  const JsonValue none = {.type = Type::kObject, .text = "", .items = {}, .members = {}};
  const JsonValue* found = schema.find("properties");
  const JsonValue* required = schema.find("required");
  const JsonValue* others = schema.find("additionalProperties");
  if (found == nullptr && others != nullptr && others->is(Type::kObject)) {
    fail(pointer, "names that are not listed in 'properties' cannot be written");
  }
  std::vector<Property> properties;
  std::set<std::string_view> names;
  for (const JsonMember& member : found == nullptr ? none.members : found->members) {
    const bool needed = required != nullptr && has_string(*required, member.name);
    properties.push_back({member.name, &member.value, needed});
    names.insert(member.name);
    if (member.name.empty() || member.name.find_first_of("{}[]:,<>\n") != std::string::npos) {
      fail(pointer + "/properties", fmt::format("the name '{}' cannot be written", member.name));
    }
  }
  for (const JsonValue& name : required == nullptr ? none.items : required->items) {
    if (!names.contains(name.text)) {
      fail(pointer + "/required",
           fmt::format("'{}', which 'properties' does not list, cannot be written", name.text));
    }
  }
  return properties;
}

/// In the order of the chat template: sorted, small and capital letters alike.
TagFormat ArgumentWriter::object(const JsonValue& schema, const std::string& pointer,
                                 int depth) const {
  std::vector<Property> all = properties(schema, pointer);
  std::ranges::stable_sort(all, {}, [](const Property& property) {
    std::string low = property.name;
    std::ranges::transform(low, low.begin(), [](unsigned char c) { return std::tolower(c); });
    return low;
  });
  std::vector<TagFormat> members;
  for (const Property& property : all) {
    members.push_back(sequence_format(
        parts_of(text_format(property.name + ":"),
                 value(*property.schema, pointer + "/properties/" + escape_pointer(property.name),
                       depth + 1))));
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
  for (const Property& property : properties(schema, "")) {
    TagFormat tag = {.kind = TagFormat::Kind::kTag};
    tag.parts = {text_format(fmt::format("<parameter={}>\n", property.name)),
                 value(*property.schema, "/properties/" + escape_pointer(property.name), 1),
                 text_format("\n</parameter>\n")};
    parts.push_back(property.required ? std::move(tag) : optional_format(std::move(tag)));
  }
  return sequence_format(std::move(parts));
}

}  // namespace

TagFormat tool_arguments(const ToolCallStyle& style, const JsonValue& schema,
                         const std::string& place) {
  if (style.notation == Notation::kJson || schema.is(Type::kFalse)) {
    return schema_format(schema, place, style.whitespace);
  }
  return ArgumentWriter(style, schema, place).arguments();
}

}  // namespace specdec
