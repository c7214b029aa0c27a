#include "experiments/grammar/grammar_cases.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "core/error.h"
#include "experiments/config/config_file.h"
#include "experiments/config/yaml_tree.h"
#include "experiments/grammar/grammar_config.h"
#include "grammar/regex/regex.h"
#include "grammar/regex/regex_parser.h"

namespace specdec {
namespace {

constexpr size_t kMaxCasesBytes = size_t{1} << 30U;
constexpr const char* kCaseForm =
    R"({"id", "schema" or "grammar", "tests": [{"valid", "data" or "text"}, ...]})";
constexpr const char* kRegistryForm = R"({"uri", "schema"})";

/// A line's object: its members, looked up with errors that say what is expected.
class Line {
 public:
  Line(std::string_view text, std::string place, const char* form)
      : place_(std::move(place)), form_(form) {
    try {
      value_ = parse_json(text, "");
    } catch (const GrammarError& error) {  // its place is ":1:column: ..."
      throw ConfigError(place_ + std::string(error.what()).substr(2));
    }
    if (!value_.is(JsonValue::Type::kObject)) {
      fail("the line is no object");
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(fmt::format("{}: {}; expected {}", place_, what, form_));
  }

  const JsonValue& value() const { return value_; }
  const std::string& place() const { return place_; }
  bool has(const char* name) const { return value_.find(name) != nullptr; }

  const JsonValue& get(const JsonValue& object, const char* name) const {
    const JsonValue* member = object.find(name);
    if (member == nullptr) {
      fail(fmt::format("the member '{}' is missing", name));
    }
    return *member;
  }

  const std::string& text(const JsonValue& object, const char* name) const {
    const JsonValue& member = get(object, name);
    if (!member.is(JsonValue::Type::kString)) {
      fail(fmt::format("'{}' is no string", name));
    }
    return member.text;
  }

  /// "" when it is missing.
  std::string optional_text(const JsonValue& object, const char* name) const {
    return object.find(name) == nullptr ? "" : text(object, name);
  }

 private:
  JsonValue value_;
  std::string place_;
  const char* form_;
};

/// Calls `read` with each line that is not blank; false ends it.
void read_lines(const std::filesystem::path& file, const char* form,
                const std::function<bool(const Line&)>& read) {
  const std::string content = read_text_file(file, kMaxCasesBytes);
  std::string_view rest = content;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (text.find_first_not_of(" \t\r") != std::string_view::npos &&
        !read(Line(text, fmt::format("{}:{}", file.string(), number), form))) {
      return;
    }
  }
}

/// A schema is an object or a boolean.
std::string read_schema(const Line& line) {
  const JsonValue& schema = line.get(line.value(), "schema");
  if (!schema.is(JsonValue::Type::kObject) && !schema.is_boolean()) {
    line.fail("'schema' is neither an object nor true or false");
  }
  return to_json(schema);
}

/// The tree of a value as if it had been written in YAML.
std::shared_ptr<YamlTree> yaml_of(const JsonValue& value, const std::string& place) {
  using Type = JsonValue::Type;
  const bool is_text = value.is(Type::kString);
  auto tree = value.is(Type::kNull)
                  ? std::make_shared<YamlTree>()
                  : YamlTree::scalar(is_text ? value.text : to_json(value), is_text);
  if (value.is(Type::kArray)) {
    tree = std::make_shared<YamlTree>();
    tree->kind = YamlTree::Kind::kList;
    for (const JsonValue& item : value.items) {
      tree->items.push_back(yaml_of(item, place));
    }
  } else if (value.is(Type::kObject)) {
    tree = YamlTree::map(place);
    for (const JsonMember& member : value.members) {
      tree->set(member.name, place, yaml_of(member.value, place));
    }
  }
  tree->place = place;
  return tree;
}

GrammarSource read_line_grammar(const Line& line, const std::filesystem::path& folder) {
  const auto errors = std::make_shared<ConfigErrors>();
  const ConfigNode root(yaml_of(line.value(), line.place()), errors, folder);
  const GrammarConfig config = read_grammar(root.child("grammar"), GrammarUse::kRecorded);
  if (config.per_prompt) {
    line.fail("'per_prompt' is for configs");
  }
  errors->throw_if_any();
  return config.source;
}

std::string read_id(const Line& line) {
  if (line.has("id") || !(line.has("file") || line.has("description"))) {
    return line.text(line.value(), "id");
  }
  return fmt::format("{}: {}", line.text(line.value(), "file"),
                     line.text(line.value(), "description"));
}

/// ["text", {"token": "<|call|>"}, ...]
void read_pieces(const Line& line, const JsonValue& list, GrammarInstance& instance) {
  for (const JsonValue& item : list.items) {
    const bool is_token = item.is(JsonValue::Type::kObject) && item.members.size() == 1 &&
                          item.members[0].name == "token";
    const JsonValue& text = is_token ? item.members[0].value : item;
    if (!text.is(JsonValue::Type::kString)) {
      line.fail("'text' has an item that is neither a text nor {\"token\": NAME}");
    }
    instance.pieces.push_back({text.text, is_token});
    instance.text += text.text;
  }
}

GrammarInstance read_instance(const Line& line, const JsonValue& test, bool is_schema,
                              const std::string& whitespace) {
  const JsonValue& valid = line.get(test, "valid");
  if (!valid.is_boolean()) {
    line.fail("'valid' is neither true nor false");
  }
  GrammarInstance instance;
  instance.valid = valid.is(JsonValue::Type::kTrue);
  instance.description = line.optional_text(test, "description");
  const JsonValue* text = test.find("text");
  if (is_schema && text == nullptr) {
    instance.text = write_json(line.get(test, "data"), whitespace);
  } else if (text != nullptr && text->is(JsonValue::Type::kArray)) {
    read_pieces(line, *text, instance);
  } else {
    instance.text = line.text(test, "text");
  }
  return instance;
}

GrammarCase read_case(const Line& line, const std::filesystem::path& folder,
                      const std::string& whitespace) {
  GrammarCase result;
  result.id = read_id(line);
  if (line.has("grammar")) {
    if (line.has("schema")) {
      line.fail("it has both a 'schema' and a 'grammar'");
    }
    result.grammar = read_line_grammar(line, folder);
  } else {
    result.schema = read_schema(line);
  }
  const bool is_schema = !result.grammar || result.grammar->kind == GrammarKind::kJsonSchema;
  const std::string style = result.grammar ? result.grammar->schema.whitespace : whitespace;
  const JsonValue* tests = line.value().find("tests");
  if (tests != nullptr && !tests->is(JsonValue::Type::kArray)) {
    line.fail("'tests' is no array");
  }
  for (const JsonValue& test : tests == nullptr ? std::vector<JsonValue>() : tests->items) {
    result.tests.push_back(read_instance(line, test, is_schema, style));
  }
  return result;
}

/// Writes JSON with white space between its tokens.
class StyledWriter {
 public:
  explicit StyledWriter(const std::string& whitespace) : spaced_(whitespace == "spaced") {
    if (whitespace.starts_with("indent:")) {
      indent_ = 0;
      std::from_chars(whitespace.data() + 7, whitespace.data() + whitespace.size(), *indent_);
    }
  }

  void write(const JsonValue& value, std::string& out) {
    if (value.is(JsonValue::Type::kArray)) {
      write_parts(value.items, "[]", out, [&](const JsonValue& item) { write(item, out); });
    } else if (value.is(JsonValue::Type::kObject)) {
      write_parts(value.members, "{}", out, [&](const JsonMember& member) {
        out += to_json_string(member.name);
        out += spaced_ || indent_ ? ": " : ":";
        write(member.value, out);
      });
    } else {
      out += to_json(value);
    }
  }

 private:
  template <class Parts, class WritePart>
  void write_parts(const Parts& parts, std::string_view brackets, std::string& out,
                   const WritePart& write_part) {
    out += brackets[0];
    ++depth_;
    for (const auto& part : parts) {
      out += &part == &parts.front() ? "" : spaced_ ? ", " : ",";
      new_line(out);
      write_part(part);
    }
    --depth_;
    if (!parts.empty()) {
      new_line(out);
    }
    out += brackets[1];
  }

  void new_line(std::string& out) const {
    if (indent_) {
      out += '\n' + std::string(depth_ * *indent_, ' ');
    }
  }

  bool spaced_;
  std::optional<size_t> indent_;
  size_t depth_ = 0;
};

/// Some short legible texts that match; none of a pattern that is not understood.
std::vector<std::string> pattern_examples(const std::string& pattern) {
  constexpr uint64_t kExamples = 3;
  std::vector<std::string> examples;
  try {
    RegexStore store;
    const RegexId legible = store.repeat(store.one_of(CodePoints({{'0', 'z'}})), 0, std::nullopt);
    const RegexId language = store.all_of(parse_regex(store, pattern, true), legible);
    for (const auto& text : store.list(language, kExamples)) {
      examples.push_back(to_utf8(text));
    }
  } catch (const GrammarError&) {
  }
  return examples;
}

void collect_names(const JsonValue& schema, std::vector<std::string>& required,
                   std::vector<std::string>& others) {
  for (const JsonValue& item : schema.items) {
    collect_names(item, required, others);
  }
  for (const auto& [keyword, value] : schema.members) {
    collect_names(value, required, others);
    for (const JsonValue& name : value.items) {
      if (keyword == "required" && name.is(JsonValue::Type::kString)) {
        required.push_back(name.text);
      }
    }
    for (const JsonMember& member : value.members) {
      if (keyword == "properties") {
        others.push_back(member.name);
      } else if (keyword == "patternProperties") {
        const auto examples = pattern_examples(member.name);
        others.insert(others.end(), examples.begin(), examples.end());
      }
    }
  }
}

}  // namespace

std::vector<GrammarCase> read_grammar_cases(const std::filesystem::path& file,
                                            const std::string& whitespace, int64_t limit) {
  std::vector<GrammarCase> cases;
  read_lines(file, kCaseForm, [&](const Line& line) {
    cases.push_back(read_case(line, file.parent_path(), whitespace));
    return limit == 0 || static_cast<int64_t>(cases.size()) < limit;
  });
  if (cases.empty()) {
    throw ConfigError(fmt::format("{}: holds no line {}", file.string(), kCaseForm));
  }
  return cases;
}

SchemaRegistry read_schema_registry(const std::filesystem::path& file) {
  SchemaRegistry registry;
  read_lines(file, kRegistryForm, [&](const Line& line) {
    registry.add(line.text(line.value(), "uri"), read_schema(line));
    return true;
  });
  return registry;
}

std::string write_json(const JsonValue& value, const std::string& whitespace) {
  std::string out;
  StyledWriter(whitespace).write(value, out);
  return out;
}

std::vector<std::string> schema_names(const JsonValue& schema) {
  std::vector<std::string> names;
  std::vector<std::string> others;
  collect_names(schema, names, others);
  names.insert(names.end(), others.begin(), others.end());
  std::set<std::string_view> seen;
  std::vector<std::string> result;
  for (const std::string& name : names) {
    if (seen.insert(name).second) {
      result.push_back(name);
    }
  }
  return result;
}

}  // namespace specdec
