#include "grammar/tags/tag_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "core/edit_distance.h"
#include "core/error.h"

namespace specdec {
namespace {

using Kind = TagFormat::Kind;
using Type = JsonValue::Type;

[[noreturn]] void fail_format(const std::string& place, const std::string& what) {
  throw GrammarError(place.empty() ? what : fmt::format("#{}: {}", place, what));
}

std::string near_name(std::string_view name, const std::vector<std::string>& known) {
  const auto nearest = std::ranges::min_element(
      known, {}, [&](const std::string& other) { return edit_distance(name, other); });
  const bool is_near = nearest != known.end() && edit_distance(name, *nearest) <= name.size() / 2;
  return fmt::format("{}{}",
                     is_near ? fmt::format("did you mean '{}'? Known: ", *nearest) : "known: ",
                     fmt::join(known, ", "));
}

/// The members of one object, all of which must be read.
class Members {
 public:
  Members(const JsonValue& value, std::string place) : value_(value), place_(std::move(place)) {
    if (!value.is(Type::kObject)) {
      fail_format(place_, "a format is an object with a 'type'");
    }
    known_.emplace_back("type");
  }

  const std::string& place() const { return place_; }
  std::string at(std::string_view key) const { return fmt::format("{}/{}", place_, key); }

  const JsonValue* find(std::string_view key) {
    if (std::ranges::find(known_, key) == known_.end()) {
      known_.emplace_back(key);
    }
    return value_.find(key);
  }
  const JsonValue& require(std::string_view key) {
    const JsonValue* found = find(key);
    if (found == nullptr) {
      fail_format(place_, fmt::format("the key '{}' is missing", key));
    }
    return *found;
  }
  std::string text(std::string_view key) { return string_of(require(key), at(key)); }
  std::string text_or(std::string_view key, std::string usual) {
    const JsonValue* found = find(key);
    return found == nullptr ? std::move(usual) : string_of(*found, at(key));
  }
  bool flag(std::string_view key) {
    const JsonValue* found = find(key);
    if (found != nullptr && !found->is_boolean()) {
      fail_format(at(key), "must be true or false");
    }
    return found != nullptr && found->is(Type::kTrue);
  }
  std::optional<uint64_t> count(std::string_view key) {
    const JsonValue* found = find(key);
    if (found == nullptr || found->is(Type::kNull)) {
      return std::nullopt;
    }
    uint64_t number = 0;
    const char* end = found->text.data() + found->text.size();
    const auto read = std::from_chars(found->text.data(), end, number);
    if (!found->is(Type::kNumber) || read.ec != std::errc() || read.ptr != end) {
      fail_format(at(key), "must be a whole number, not negative");
    }
    return number;
  }
  std::vector<std::string> texts(std::string_view key) {
    const JsonValue* found = find(key);
    std::vector<std::string> texts;
    for (size_t i = 0; found != nullptr && i < list_of(*found, key).items.size(); ++i) {
      texts.push_back(string_of(found->items[i], fmt::format("{}/{}", at(key), i)));
    }
    return texts;
  }
  const JsonValue& list(std::string_view key) { return list_of(require(key), key); }

  void refuse_others() const {
    for (const JsonMember& member : value_.members) {
      if (std::ranges::find(known_, member.name) == known_.end()) {
        fail_format(place_, fmt::format("the key '{}' is unknown; {}", member.name,
                                        near_name(member.name, known_)));
      }
    }
  }

 private:
  static std::string string_of(const JsonValue& value, const std::string& place) {
    if (!value.is(Type::kString)) {
      fail_format(place, "must be a text");
    }
    return value.text;
  }
  const JsonValue& list_of(const JsonValue& value, std::string_view key) const {
    if (!value.is(Type::kArray)) {
      fail_format(at(key), "must be a list");
    }
    return value;
  }

  const JsonValue& value_;
  std::string place_;
  std::vector<std::string> known_;
};

TagFormat read_format(const JsonValue& value, const std::string& place);

std::vector<TagFormat> read_formats(Members& members, std::string_view key) {
  std::vector<TagFormat> formats;
  const JsonValue& list = members.list(key);
  for (size_t i = 0; i < list.items.size(); ++i) {
    formats.push_back(read_format(list.items[i], fmt::format("{}/{}", members.at(key), i)));
  }
  if (formats.empty()) {
    fail_format(members.at(key), "the list is empty; give at least one");
  }
  return formats;
}

/// A text, a format, or a list of these of which one stands there.
TagFormat read_delimiter(const JsonValue& value, const std::string& place) {
  if (value.is(Type::kString)) {
    TagFormat format = text_format(value.text);
    format.place = place;
    return format;
  }
  if (!value.is(Type::kArray)) {
    return read_format(value, place);
  }
  std::vector<TagFormat> formats;
  for (size_t i = 0; i < value.items.size(); ++i) {
    formats.push_back(read_delimiter(value.items[i], fmt::format("{}/{}", place, i)));
  }
  if (formats.empty()) {
    fail_format(place, "the list is empty; give at least one");
  }
  return or_format(std::move(formats));
}

TagFormat read_tag(Members& members) {
  TagFormat format = {.kind = Kind::kTag};
  const JsonValue* end = members.find("end");
  format.parts.push_back(read_delimiter(members.require("begin"), members.at("begin")));
  format.parts.push_back(read_format(members.require("content"), members.at("content")));
  format.parts.push_back(end == nullptr ? text_format("")
                                        : read_delimiter(*end, members.at("end")));
  return format;
}

std::vector<TagFormat> read_tags(Members& members) {
  std::vector<TagFormat> tags = read_formats(members, "tags");
  for (size_t i = 0; i < tags.size(); ++i) {
    if (tags[i].kind != Kind::kTag) {
      fail_format(fmt::format("{}/{}", members.at("tags"), i), "must be of the type 'tag'");
    }
  }
  return tags;
}

TagFormat read_triggered(Members& members) {
  TagFormat format = {.kind = Kind::kTriggered};
  format.parts = read_tags(members);
  format.triggers = members.texts("triggers");
  format.excludes = members.texts("excludes");
  format.at_least_one = members.flag("at_least_one");
  format.stop_after_first = members.flag("stop_after_first");
  return format;
}

TagFormat read_separated(Members& members) {
  TagFormat format = {.kind = Kind::kSeparated};
  format.parts = read_tags(members);
  format.separator = {read_delimiter(members.require("separator"), members.at("separator"))};
  format.at_least_one = members.flag("at_least_one");
  format.stop_after_first = members.flag("stop_after_first");
  return format;
}

TagFormat read_schema_content(Members& members) {
  TagContent content = {.type = "json_schema", .schema = members.require("json_schema")};
  content.whitespace = members.text_or("whitespace", "");
  if (members.text_or("style", "json") != "json") {
    fail_format(members.at("style"),
                "only the style 'json' is known here; the type 'tool_calls' "
                "has the styles of models");
  }
  return grammar_format(std::move(content));
}

TagFormat read_text_content(Members& members, const char* type, std::string_view key) {
  TagContent content = {.type = type, .text = members.text(key)};
  if (content.type != "regex") {
    content.start = members.text_or("start", "");
  }
  return grammar_format(std::move(content));
}

TagFormat read_choice(Members& members) {
  return grammar_format({.type = "choice", .choices = members.texts("choices")});
}

TagFormat read_token(Members& members) {
  const JsonValue& token = members.require("token");
  if (token.is(Type::kNumber)) {
    return token_format(fmt::format("<[{}]>", token.text));
  }
  return token_format(members.text("token"));
}

TagFormat read_repeat(Members& members, uint64_t min, std::optional<uint64_t> max) {
  TagFormat format = {.kind = Kind::kRepeat, .min = min, .max = max};
  format.parts.push_back(read_format(members.require("content"), members.at("content")));
  return format;
}

using Reader = std::function<TagFormat(Members&)>;

const std::map<std::string, Reader, std::less<>>& format_readers() {
  static const std::map<std::string, Reader, std::less<>> readers = {
      {"const_string", [](Members& m) { return text_format(m.text("value")); }},
      {"token", read_token},
      {"json_schema", read_schema_content},
      {"regex", [](Members& m) { return read_text_content(m, "regex", "pattern"); }},
      {"gbnf", [](Members& m) { return read_text_content(m, "gbnf", "grammar"); }},
      {"grammar", [](Members& m) { return read_text_content(m, "gbnf", "grammar"); }},
      {"lark", [](Members& m) { return read_text_content(m, "lark", "grammar"); }},
      {"choice", read_choice},
      {"any_text", [](Members& m) { return free_format(m.texts("excludes")); }},
      {"sequence", [](Members& m) { return sequence_format(read_formats(m, "elements")); }},
      {"or", [](Members& m) { return or_format(read_formats(m, "elements")); }},
      {"tag", read_tag},
      {"triggered_tags", read_triggered},
      {"tags_with_separator", read_separated},
      {"optional", [](Members& m) { return read_repeat(m, 0, 1); }},
      {"star", [](Members& m) { return read_repeat(m, 0, std::nullopt); }},
      {"plus", [](Members& m) { return read_repeat(m, 1, std::nullopt); }},
      {"repeat",
       [](Members& m) {
         const auto min = m.count("min");
         return read_repeat(m, min.value_or(0), m.count("max"));
       }},
  };
  return readers;
}

TagFormat read_format(const JsonValue& value, const std::string& place) {
  Members members(value, place);
  const JsonValue* type = value.find("type");
  // A tag has the keys of no other format, so that it needs no type.
  const bool is_tag = type == nullptr && value.find("begin") != nullptr;
  const std::string name = is_tag ? "tag" : members.text("type");
  const auto reader = format_readers().find(name);
  if (reader == format_readers().end()) {
    std::vector<std::string> known;
    for (const auto& [other, read] : format_readers()) {
      known.push_back(other);
    }
    fail_format(members.at("type"), fmt::format("there is no format of the type '{}'; {}", name,
                                                near_name(name, known)));
  }
  TagFormat format = reader->second(members);
  members.refuse_others();
  format.place = place;
  return format;
}

}  // namespace

TagFormat text_format(std::string text) { return {.kind = Kind::kText, .text = std::move(text)}; }

TagFormat token_format(std::string name) { return {.kind = Kind::kToken, .text = std::move(name)}; }

TagFormat token_or_text_format(std::string name) {
  return {.kind = Kind::kTokenOrText, .text = std::move(name)};
}

TagFormat free_format(std::vector<std::string> excludes) {
  return {.kind = Kind::kFree, .excludes = std::move(excludes)};
}

TagFormat grammar_format(TagContent content) {
  return {.kind = Kind::kGrammar, .content = std::make_shared<TagContent>(std::move(content))};
}

TagFormat schema_format(JsonValue schema, std::string place, std::string whitespace) {
  TagFormat format = grammar_format(
      {.type = "json_schema", .schema = std::move(schema), .whitespace = std::move(whitespace)});
  format.place = std::move(place);
  return format;
}

TagFormat sequence_format(std::vector<TagFormat> parts) {
  return {.kind = Kind::kSequence, .parts = std::move(parts)};
}

TagFormat or_format(std::vector<TagFormat> parts) {
  return {.kind = Kind::kOr, .parts = std::move(parts)};
}

TagFormat optional_format(TagFormat part) {
  TagFormat format = {.kind = Kind::kRepeat, .max = 1};
  format.parts.push_back(std::move(part));
  return format;
}

TagFormat parse_tag_format(const JsonValue& value) {
  const JsonValue* type = value.find("type");
  if (type != nullptr && type->is(Type::kString) && type->text == "structural_tag") {
    Members members(value, "");
    TagFormat format = read_format(members.require("format"), "/format");
    members.refuse_others();
    return format;
  }
  return read_format(value, "");
}

}  // namespace specdec
