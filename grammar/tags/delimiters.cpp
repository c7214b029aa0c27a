#include "grammar/tags/delimiters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "grammar/json/json_schema.h"
#include "grammar/schema/json_pointer.h"
#include "grammar/tags/schema_values.h"

namespace specdec {
namespace {

using DelimiterType = JsonValue::Type;

JsonValue object_json(std::string name, JsonValue value) {
  JsonValue object = {.type = DelimiterType::kObject, .text = "", .items = {}, .members = {}};
  object.members.push_back({std::move(name), std::move(value)});
  return object;
}

/// A regular expression for texts with one of the delimiters in them.
std::string delimiter_pattern(const ToolCallStyle& style) {
  std::string pattern;
  for (const std::string& delimiter : style.delimiters) {
    pattern += pattern.empty() ? "" : "|";
    for (const char c : delimiter) {
      pattern += c == '|' ? "\\|" : std::string(1, c);
    }
  }
  return pattern;
}

/// Walks a schema, of which `place` is the pointer.
class DelimiterCheck {
 public:
  DelimiterCheck(const ToolCallStyle& style, const SchemaCheck& check)
      : style_(style), check_(check) {}

  void schema(const JsonValue& schema, const std::string& place) const {
    for (const JsonMember& member : schema.members) {
      const std::string here = place + "/" + escape_pointer(member.name);
      if (is_map_of_schemas(member.name)) {
        for (const JsonMember& entry : member.value.members) {
          if (member.name == "properties" && !entry.value.is(DelimiterType::kFalse)) {
            text(entry.name, here);
          }
          this->schema(entry.value, here + "/" + escape_pointer(entry.name));
        }
      } else if (member.name == "enum" || member.name == "const" || member.name == "required") {
        values(member.value, here);
      } else if (member.name == "pattern" && member.value.is(DelimiterType::kString)) {
        pattern(member.value, here);
      } else if (may_hold_schemas(member.name)) {
        below(member.value, here);
      }
    }
  }

 private:
  void below(const JsonValue& value, const std::string& place) const {
    if (value.is(DelimiterType::kObject)) {
      schema(value, place);
    }
    for (size_t i = 0; i < value.items.size(); ++i) {
      below(value.items[i], fmt::format("{}/{}", place, i));
    }
  }

  void text(const std::string& text, const std::string& place) const {
    const std::string_view delimiter = delimiter_in(style_, text);
    if (!delimiter.empty()) {
      throw GrammarError(
          fmt::format("#{}: '{}' contains '{}', which ends calls in the style '{}'; "
                      "rename it",
                      place, text, delimiter, style_.name));
    }
  }

  void values(const JsonValue& value, const std::string& place) const {
    text(value.is(DelimiterType::kString) ? value.text : "", place);
    for (const JsonValue& item : value.items) {
      values(item, place);
    }
    for (const JsonMember& member : value.members) {
      text(member.name, place);
      values(member.value, place);
    }
  }

  void pattern(const JsonValue& pattern, const std::string& place) const {
    try {
      (void)without_delimiters(style_, object_json("pattern", pattern), check_);
    } catch (const GrammarError& error) {
      throw GrammarError(fmt::format("#{}: {}", place, error.what()));
    }
  }

  const ToolCallStyle& style_;
  const SchemaCheck& check_;
};

}  // namespace

std::string_view delimiter_in(const ToolCallStyle& style, std::string_view text) {
  for (const std::string& delimiter : style.delimiters) {
    if (text.find(delimiter) != std::string_view::npos) {
      return delimiter;
    }
  }
  return "";
}

JsonValue without_delimiters(const ToolCallStyle& style, const JsonValue& strings,
                             const SchemaCheck& check) {
  JsonValue schema = strings;
  schema.members.push_back({"type", text_value("string")});
  if (style.delimiters.empty()) {
    return schema;
  }
  if (check) {
    check(schema);  // what is wrong without the delimiters
  }
  schema.members.push_back({"not", object_json("pattern", text_value(delimiter_pattern(style)))});
  try {
    if (check) {
      check(schema);
    }
  } catch (const GrammarError& error) {
    if (std::string_view(error.what()) != kNothingSatisfies) {
      throw;
    }
    throw GrammarError(fmt::format(
        "every text that {} allows contains '{}', which ends values or calls in the style '{}': "
        "none can be written",
        to_json(strings), fmt::join(style.delimiters, "' or '"), style.name));
  }
  return schema;
}

JsonValue values_without_delimiters(const ToolCallStyle& style, const JsonValue& schema,
                                    const std::string& no_names) {
  JsonValue both = schema;
  if (both.find("allOf") == nullptr) {
    both.members.push_back({"allOf", parse_json("[]", "allOf")});
  }
  JsonValue& all = std::ranges::find(both.members, "allOf", &JsonMember::name)->value;
  const std::string delimiters = delimiter_pattern(style);
  const std::string pattern = to_json(text_value(delimiters));
  const std::string names =
      no_names.empty() ? pattern : to_json(text_value(delimiters + "|" + no_names));
  // In every draft. Within 'not', so that 'unevaluatedItems' and the like beside it are not misled.
  all.items.push_back(
      parse_json(fmt::format(R"({{"not": {{"not": {{"not": {{"type": "string", "pattern": {0}}},
                      "items": {{"$ref": "{1}"}}, "additionalProperties": {{"$ref": "{1}"}},
                      "patternProperties": {{{2}: {{"not": {{}}}}}}}}}}}})",
                             pattern, fmt::format("#/allOf/{}/not/not", all.items.size()), names),
                 "delimiters"));
  return both;
}

void check_delimiters(const ToolCallStyle& style, const JsonValue& schema,
                      const SchemaCheck& check) {
  if (!style.delimiters.empty()) {
    DelimiterCheck(style, check).schema(schema, "");
  }
}

}  // namespace specdec
