#include "grammar/tags/tool_schemas.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "grammar/interruption.h"
#include "grammar/schema/json_pointer.h"
#include "grammar/schema/uri.h"
#include "grammar/tags/schema_values.h"

namespace specdec {
namespace {

using ToolType = JsonValue::Type;

constexpr int kMaxDepth = 32;          // of values in values
constexpr int kMaxObjectParts = 1000;  // in the allOf of an object, and in theirs
constexpr size_t kShownPointer = 160;  // bytes, or somewhat fewer

}  // namespace

void ToolSchemas::fail(const std::string& pointer, const std::string& what) const {
  std::string where = pointer.empty() ? "" : fmt::format("#{}: ", pointer);
  if (pointer.size() > kShownPointer) {
    where = fmt::format("#{}/...: ", pointer.substr(0, pointer.rfind('/', kShownPointer)));
  }
  throw GrammarError(fmt::format("#{}: {}{} in the style '{}'", place_, where, what, style_.name));
}

void ToolSchemas::check_keywords(const JsonValue& schema, const std::set<std::string_view>& known,
                                 const std::string& pointer, std::string_view type) const {
  type = type == "integer" ? "number" : type;
  for (const JsonMember& member : schema.members) {
    const auto restricted = restricted_type(member.name);
    const bool matters = restricted && (restricted->empty() || type.empty() || *restricted == type);
    if (matters && !known.contains(member.name)) {
      fail(pointer, fmt::format("the keyword '{}' cannot be enforced", member.name));
    }
  }
}

const JsonValue& ToolSchemas::resolved(const JsonValue& schema, const std::string& pointer,
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

bool ToolSchemas::is_object(const JsonValue& given, const std::string& pointer, int depth) const {
  Interruption::check();
  const JsonValue& schema = resolved(given, pointer, depth);
  if (const JsonValue* type = schema.find("type")) {
    return type->text == "object";
  }
  if (const auto known = objects_.find(&schema); known != objects_.end()) {
    return known->second;
  }
  const JsonValue* all = schema.find("allOf");
  return objects_[&schema] = all != nullptr && !all->items.empty() &&
                             std::ranges::all_of(all->items, [&](const JsonValue& part) {
                               return is_object(part, pointer + "/allOf", depth + 1);
                             });
}

std::optional<std::vector<ToolSchemas::Property>> ToolSchemas::properties(
    const JsonValue& schema, const std::string& pointer) const {
  Object object;
  collect(schema, pointer, 0, object);
  if (object.schemas > 1 && object.others != nullptr) {
    fail(object.others_pointer, "'additionalProperties' with an allOf cannot be enforced");
  }
  for (const JsonValue* name : object.required) {
    add_required(*name, pointer, object);
  }
  if (object.properties.empty() && object.others != nullptr &&
      object.others->is(ToolType::kObject)) {
    fail(pointer, "names that are not listed in 'properties' cannot be written");
  }
  for (const Property& property : object.properties) {
    if (property.name.empty() || property.name.find_first_of("{}[]:,<>\n") != std::string::npos) {
      fail(pointer + "/properties", fmt::format("the name '{}' cannot be written", property.name));
    }
  }
  return object.lists || object.others != nullptr ? std::optional(std::move(object.properties))
                                                  : std::nullopt;
}

void ToolSchemas::collect(const JsonValue& given, const std::string& pointer, int depth,
                          Object& object) const {
  Interruption::check();
  if (++object.schemas > kMaxObjectParts) {
    fail(pointer, fmt::format("an object whose allOf has more than {} parts cannot be written",
                              kMaxObjectParts));
  }
  const JsonValue& schema = resolved(given, pointer, depth);
  check_keywords(schema, {"type", "properties", "required", "additionalProperties", "allOf"},
                 pointer, "object");
  const JsonValue* type = schema.find("type");
  if (type != nullptr && type->text != "object" && !has_string(*type, "object")) {
    fail(pointer, "a part of an object that has another 'type' cannot be written");
  }
  if (const JsonValue* listed = schema.find("properties")) {
    object.lists = true;
    add_properties(*listed, pointer + "/properties", object);
  }
  if (const JsonValue* required = schema.find("required")) {
    for (const JsonValue& name : required->items) {
      object.required.push_back(&name);
    }
  }
  const JsonValue* others = schema.find("additionalProperties");
  if (others != nullptr && !others->is(ToolType::kTrue)) {
    object.others = others;
    object.others_pointer = pointer + "/additionalProperties";
  }
  if (const JsonValue* all = schema.find("allOf")) {
    for (size_t i = 0; i < all->items.size(); ++i) {
      collect(all->items[i], fmt::format("{}/allOf/{}", pointer, i), depth + 1, object);
    }
  }
}

void ToolSchemas::add_properties(const JsonValue& listed, const std::string& pointer,
                                 Object& object) const {
  for (const JsonMember& member : listed.members) {
    const std::string here = pointer + "/" + escape_pointer(member.name);
    if (!object.names.insert(member.name).second) {
      fail(here, "a name that two parts of an allOf list cannot be enforced");
    }
    object.properties.push_back({member.name, &member.value, here, false});
  }
}

void ToolSchemas::add_required(const JsonValue& name, const std::string& pointer,
                               Object& object) const {
  const auto found = std::ranges::find(object.properties, name.text, &Property::name);
  if (found != object.properties.end()) {
    found->required = true;
    return;
  }
  if (object.others == nullptr || !object.others->is(ToolType::kObject)) {
    fail(pointer + "/required",
         fmt::format("'{}', which 'properties' does not list, cannot be written", name.text));
  }
  object.names.insert(name.text);
  object.properties.push_back({name.text, object.others, object.others_pointer, true});
}

}  // namespace specdec
