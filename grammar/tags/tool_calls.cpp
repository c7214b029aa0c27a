#include "grammar/tags/tool_calls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <utility>

#include "core/edit_distance.h"
#include "core/error.h"
#include "grammar/json/json_schema.h"
#include "grammar/tags/schema_values.h"
#include "grammar/tags/tag_place.h"
#include "grammar/tags/tool_arguments.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;

[[noreturn]] void fail_call(const std::string& place, const std::string& what) {
  throw GrammarError(place.empty() ? what : fmt::format("#{}: {}", place, what));
}

/// How many calls an answer has.
enum class Calls { kNone, kAuto, kRequired };

struct Tool {
  std::string name, place;
  const JsonValue* parameters;  ///< nullptr: none
};

struct Request {
  ToolCallStyle style;
  std::vector<Tool> tools;
  Calls calls = Calls::kAuto;
  bool parallel = true;
};

const JsonValue& object_of(const JsonValue& value, const std::string& place) {
  if (!value.is(Type::kObject)) {
    fail_call(place, "must be an object");
  }
  return value;
}

std::string text_of(const JsonValue& object, std::string_view key, const std::string& place) {
  const JsonValue* found = object.find(key);
  if (found == nullptr) {
    fail_call(place, fmt::format("the key '{}' is missing; give a text", key));
  }
  if (!found->is(Type::kString)) {
    fail_call(fmt::format("{}/{}", place, key), fmt::format("{} is no text", to_json(*found)));
  }
  return found->text;
}

void refuse_other_keys(const JsonValue& object, const std::vector<std::string>& known,
                       const std::string& place) {
  for (const JsonMember& member : object.members) {
    if (std::ranges::find(known, member.name) == known.end()) {
      fail_call(place, fmt::format("the key '{}' is unknown; known: {}", member.name,
                                   fmt::join(known, ", ")));
    }
  }
}

ToolCallStyle find_style(const std::string& name) {
  std::vector<std::string> names;
  for (const ToolCallStyle& style : tool_call_styles()) {
    if (style.name == name) {
      return style;
    }
    names.push_back(style.name);
  }
  const auto near = std::ranges::min_element(
      names, {}, [&](const std::string& other) { return edit_distance(name, other); });
  const bool is_near = edit_distance(name, *near) <= std::max<size_t>(1, name.size() / 2);
  fail_call("/style", fmt::format("there is no style '{}'; {}nown: {}", name,
                                  is_near ? fmt::format("did you mean '{}'? K", *near) : "k",
                                  fmt::join(names, ", ")));
}

Tool read_tool(const JsonValue& value, std::string place) {
  const JsonValue* function = object_of(value, place).find("function");
  if (function == nullptr) {
    function = &value;  // {"type": "function", "name": ...}, as in the Responses API
  } else {
    refuse_other_keys(value, {"type", "function"}, place);
    place += "/function";
    object_of(*function, place);
  }
  const JsonValue* type = value.find("type");
  if (type != nullptr && type->text != "function") {
    fail_call(place, fmt::format("a tool of the type '{}'; only 'function' is known", type->text));
  }
  refuse_other_keys(*function, {"type", "name", "description", "parameters", "strict"}, place);
  const std::string name = text_of(*function, "name", place);
  const bool is_name = !name.empty() && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  });
  if (!is_name) {
    fail_call(place + "/name",
              fmt::format("'{}' is no name; it must have letters, digits, '_', '-' and '.'", name));
  }
  return {name, place, function->find("parameters")};
}

std::vector<Tool> read_tools(const JsonValue& value) {
  const JsonValue* tools = value.find("tools");
  if (tools == nullptr || !tools->is(Type::kArray)) {
    fail_call("/tools", "must be a list of tools");
  }
  std::vector<Tool> read;
  std::set<std::string> names;
  for (size_t i = 0; i < tools->items.size(); ++i) {
    read.push_back(read_tool(tools->items[i], fmt::format("/tools/{}", i)));
    if (!names.insert(read.back().name).second) {
      fail_call(read.back().place, fmt::format("there are two tools '{}'", read.back().name));
    }
  }
  return read;
}

void choose_function(const JsonValue& choice, Request& request) {
  const JsonValue* function = object_of(choice, "/tool_choice").find("function");
  const std::string name =
      text_of(function == nullptr ? choice : object_of(*function, "/tool_choice/function"), "name",
              "/tool_choice");
  std::vector<std::string> names;
  for (const Tool& tool : request.tools) {
    names.push_back(tool.name);
  }
  std::erase_if(request.tools, [&](const Tool& tool) { return tool.name != name; });
  if (request.tools.empty()) {
    fail_call("/tool_choice",
              fmt::format("there is no tool '{}'; there are {}", name, fmt::join(names, ", ")));
  }
  request.calls = Calls::kRequired;
  request.parallel = false;
}

void read_choice(const JsonValue& value, Request& request) {
  const JsonValue* choice = value.find("tool_choice");
  if (choice == nullptr || choice->is(Type::kNull) || choice->text == "auto") {
    request.calls = Calls::kAuto;
  } else if (choice->text == "required") {
    request.calls = Calls::kRequired;
  } else if (choice->text == "none") {
    request.calls = Calls::kNone;
  } else if (choice->is(Type::kObject)) {
    choose_function(*choice, request);
  } else {
    fail_call("/tool_choice", fmt::format("'{}' is not known; known: auto, required, none, or an "
                                          "object that names a function",
                                          choice->text));
  }
  if (request.tools.empty() && request.calls != Calls::kNone) {
    fail_call("/tools",
              "there is no tool; give at least one, or say "
              "\"tool_choice\": \"none\" for an answer without calls");
  }
}

Request read_request(const JsonValue& value) {
  object_of(value, "");
  refuse_other_keys(value, {"style", "tools", "tool_choice", "parallel_tool_calls", "whitespace"},
                    "");
  Request request;
  request.style = find_style(text_of(value, "style", ""));
  request.tools = read_tools(value);
  if (const JsonValue* parallel = value.find("parallel_tool_calls")) {
    if (!parallel->is_boolean()) {
      fail_call("/parallel_tool_calls", "must be true or false");
    }
    request.parallel = parallel->is(Type::kTrue);
  }
  if (value.find("whitespace") != nullptr) {
    request.style.whitespace = text_of(value, "whitespace", "");
    at_place("/whitespace", [&] { check_whitespace(request.style.whitespace); });
  }
  read_choice(value, request);
  return request;
}

/// JSON of the parameters, which are an object whatever their schema says.
JsonValue parameters_of(const Tool& tool) {
  if (tool.parameters == nullptr || tool.parameters->is(Type::kNull)) {
    return parse_json(R"({"type":"object","additionalProperties":false})", "");
  }
  JsonValue schema = *tool.parameters;
  if (schema.is(Type::kTrue)) {
    return parse_json(R"({"type":"object"})", "");
  }
  const std::string place = fmt::format("{}/parameters ('{}')", tool.place, tool.name);
  if (!schema.is(Type::kObject) && !schema.is(Type::kFalse)) {
    fail_call(place, "must be the schema of an object");
  }
  const JsonValue* type = schema.find("type");
  if (type != nullptr && type->text != "object" && !has_string(*type, "object")) {
    fail_call(place + "/type", fmt::format("arguments are an object, which {} excludes; give "
                                           "'object', or leave out the type",
                                           to_json(*type)));
  }
  std::erase_if(schema.members, [](const JsonMember& member) { return member.name == "type"; });
  if (schema.is(Type::kObject)) {
    schema.members.push_back(
        {"type", {.type = Type::kString, .text = "object", .items = {}, .members = {}}});
  }
  return schema;
}

/// All tools after what every call begins with.
TagFormat call_format(const Request& request, const SchemaCheck& check) {
  const ToolCallStyle& style = request.style;
  std::vector<TagFormat> calls;
  for (const Tool& tool : request.tools) {
    const std::string place = fmt::format("{}/parameters ('{}')", tool.place, tool.name);
    const JsonValue parameters = parameters_of(tool);
    if (check && style.notation != ToolCallStyle::Notation::kJson) {
      at_place(place, [&] { check(parameters); });
    }
    calls.push_back(sequence_format(parts_of(spell_of_style(style, tool.name + style.arguments),
                                             tool_arguments(style, parameters, place, check),
                                             spell_of_style(style, style.end))));
  }
  return sequence_format(parts_of(spell_of_style(style, style.begin), or_format(std::move(calls))));
}

TagFormat calls_format(const Request& request, const SchemaCheck& check) {
  const ToolCallStyle& style = request.style;
  TagFormat calls = call_format(request, check);
  if (style.parallel && request.parallel) {
    TagFormat several = {.kind = TagFormat::Kind::kSeparated};
    several.parts.push_back(std::move(calls));
    several.separator.push_back(spell_of_style(style, style.separator));
    several.at_least_one = true;
    calls = std::move(several);
  }
  return sequence_format(parts_of(spell_of_style(style, style.section_begin), std::move(calls),
                                  spell_of_style(style, style.section_end)));
}

std::vector<TagFormat> thoughts_format(const ToolCallStyle& style) {
  if (style.thought_begins.empty()) {
    return {};
  }
  std::vector<TagFormat> begins;
  for (const std::string& begin : style.thought_begins) {
    begins.push_back(spell_of_style(style, begin));
  }
  TagFormat thoughts = optional_format(sequence_format(parts_of(
      or_format(std::move(begins)), free_format(), spell_of_style(style, style.thought_end))));
  thoughts.max = style.many_thoughts ? std::nullopt : thoughts.max;
  return {std::move(thoughts)};
}

TagFormat answer_format(const ToolCallStyle& style, std::vector<std::string> excludes) {
  return sequence_format(
      parts_of(spell_of_style(style, style.answer_begin), free_format(std::move(excludes))));
}

/// What calls begin with, so that other text can do without it.
std::string first_text(const ToolCallStyle& style) {
  const TagFormat begin = spell_of_style(style, style.section_begin + style.begin);
  return begin.parts.front().text;
}

}  // namespace

TagFormat spell_of_style(const ToolCallStyle& style, const std::string& text) {
  std::vector<TagFormat> parts;
  std::string_view rest = text;
  while (!rest.empty()) {
    size_t at = rest.size();
    std::string_view token;
    for (const std::string& name : style.tokens) {
      const size_t found = rest.find(name);
      if (found < at) {
        at = found;
        token = name;
      }
    }
    if (at > 0) {
      parts.push_back(text_format(std::string(rest.substr(0, at))));
    }
    if (!token.empty()) {
      parts.push_back(token_or_text_format(std::string(token)));
    }
    rest.remove_prefix(at + token.size());
  }
  if (!parts.empty()) {
    parts.front().ends_free_text = true;
  }
  return sequence_format(std::move(parts));
}

TagFormat parse_tool_calls(const JsonValue& value, const SchemaCheck& check) {
  const Request request = read_request(value);
  const ToolCallStyle& style = request.style;
  std::vector<TagFormat> parts = thoughts_format(style);
  if (request.calls == Calls::kNone) {
    parts.push_back(answer_format(style, {first_text(style)}));
  } else if (request.calls == Calls::kRequired) {
    parts.push_back(calls_format(request, check));
  } else if (style.answer_begin.empty()) {
    parts.push_back(free_format());
    parts.push_back(optional_format(calls_format(request, check)));
  } else {
    parts.push_back(or_format(
        parts_of(answer_format(style, {first_text(style)}), calls_format(request, check))));
  }
  return sequence_format(std::move(parts));
}

}  // namespace specdec
