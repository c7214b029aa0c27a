#include "grammar/tags/gemma_arguments.h"

#include <fmt/format.h>

#include <utility>

#include "grammar/schema/json_pointer.h"
#include "grammar/tags/gemma_values_automaton.h"
#include "grammar/tags/schema_values.h"
#include "grammar/tags/tag_place.h"
#include "grammar/tags/tool_schemas.h"

namespace specdec {
namespace {

/// Names that the notation cannot write: it has no quotes for them, so that one which begins with a
/// quotation mark would be taken for JSON.
constexpr const char* kNoGemmaName = R"(^$|^"|[{}\[\]:,<>\n])";

/// Walks a schema for names that cannot be written. What `not` and `if` say needs none.
class NameCheck {
 public:
  NameCheck(const ToolCallStyle& style, const JsonValue& root, std::string place)
      : schemas_(style, root, std::move(place)) {}

  void schema(const JsonValue& schema, const std::string& pointer) const {
    for (const JsonMember& member : schema.members) {
      const std::string here = pointer + "/" + escape_pointer(member.name);
      if (is_map_of_schemas(member.name)) {
        entries(member, here);
      } else if (member.name == "required") {
        for (const JsonValue& required : member.value.items) {
          name(required.text, here);
        }
      } else if (member.name == "enum" || member.name == "const") {
        values(member.value, here);
      } else if (may_hold_schemas(member.name)) {
        below(member.value, here);
      }
    }
  }

 private:
  /// Schemas by name: the names of `properties` are written; patterns, names of definitions and
  /// those that dependencies speak of need not be.
  void entries(const JsonMember& map, const std::string& pointer) const {
    for (const JsonMember& entry : map.value.members) {
      if (map.name == "properties" && !entry.value.is(JsonValue::Type::kFalse)) {
        name(entry.name, pointer);
      }
      schema(entry.value, pointer + "/" + escape_pointer(entry.name));
    }
  }

  void below(const JsonValue& value, const std::string& pointer) const {
    schema(value, pointer);
    for (size_t i = 0; i < value.items.size(); ++i) {
      below(value.items[i], fmt::format("{}/{}", pointer, i));
    }
  }

  void values(const JsonValue& value, const std::string& pointer) const {
    for (const JsonValue& item : value.items) {
      values(item, pointer);
    }
    for (const JsonMember& member : value.members) {
      name(member.name, pointer);
      values(member.value, pointer);
    }
  }

  void name(const std::string& name, const std::string& pointer) const {
    if (name.empty() || name.front() == '"' ||
        name.find_first_of(kGemmaNameEnds) != std::string::npos) {
      schemas_.fail(pointer, fmt::format("the name '{}' cannot be written", name));
    }
  }

  ToolSchemas schemas_;
};

/// The schema, to which keywords may be added: up to draft 7, what stands beside a $ref says
/// nothing.
JsonValue open_root(const JsonValue& schema) {
  const JsonValue* reference = schema.find("$ref");
  const JsonValue* draft = schema.find("$schema");
  if (reference == nullptr || draft == nullptr ||
      draft->text.find("/draft-0") == std::string::npos) {
    return schema;
  }
  JsonValue root = parse_json(R"({"type":"object","allOf":[{}]})", "");
  root.members.back().value.items.front().members.push_back({"$ref", *reference});
  for (const char* kept : {"$schema", "$id", "id", "definitions", "$defs"}) {
    if (const JsonValue* value = schema.find(kept)) {
      root.members.push_back({kept, *value});
    }
  }
  return root;
}

}  // namespace

TagFormat gemma_arguments(const ToolCallStyle& style, const JsonValue& schema,
                          const std::string& place, const SchemaCheck& check) {
  at_place(place, [&] { check_delimiters(style, schema, check); });
  NameCheck(style, schema, place).schema(schema, "");
  TagFormat values =
      grammar_format({.type = "gemma_values",
                      .schema = values_without_delimiters(style, open_root(schema), kNoGemmaName)});
  values.place = place;
  return values;
}

}  // namespace specdec
