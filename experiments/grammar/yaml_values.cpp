#include "experiments/grammar/yaml_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "grammar/tags/schema_values.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;

/// The number, true or false that JSON reads there.
std::optional<JsonValue> json_scalar(const std::string& text) {
  try {
    JsonValue read = parse_json(text, "");
    if (read.is_boolean() || read.is(Type::kNumber)) {
      return read;
    }
  } catch (const GrammarError&) {
  }
  return std::nullopt;
}

/// The same number in base ten; empty if it is none.
std::string decimal_of(std::string_view digits, int base) {
  uint64_t number = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, number, base);
  return failure == std::errc() && stop == end ? fmt::format("{}", number) : "";
}

/// JSON's spelling of what YAML's core schema spells in other ways: numbers with a plus sign,
/// leading zeros, a bare point (.5, 5.) or another base, and True. Of other texts, some text.
std::string json_spelling(std::string_view text) {
  if (text == "True" || text == "TRUE") {
    return "true";
  }
  if (text == "False" || text == "FALSE") {
    return "false";
  }
  if (text.starts_with("0x") || text.starts_with("0o")) {
    return decimal_of(text.substr(2), text[1] == 'x' ? 16 : 8);
  }
  constexpr std::string_view kDigits = "0123456789";
  const bool negative = text.starts_with('-');
  text.remove_prefix(negative || text.starts_with('+') ? 1 : 0);
  std::string_view whole = text.substr(0, text.find_first_not_of(kDigits));
  std::string_view rest = text.substr(whole.size());
  rest.remove_prefix(rest.starts_with('.') ? 1 : 0);
  const bool has_fraction = rest.find_first_of(kDigits) == 0;
  const bool ends = rest.empty() || rest.find_first_of("eE") == 0;
  if (!has_fraction && (whole.empty() || !ends)) {
    return "";
  }
  whole.remove_prefix(std::min(whole.find_first_not_of('0'), whole.size()));
  return fmt::format("{}{}{}{}", negative ? "-" : "", whole.empty() ? "0" : whole,
                     has_fraction ? "." : "", rest);
}

JsonValue plain_value(const std::string& text) {
  if (const auto read = json_scalar(text)) {
    return *read;
  }
  return json_scalar(json_spelling(text)).value_or(text_value(text));
}

}  // namespace

JsonValue json_of(const YamlTree& tree) {
  JsonValue value;
  switch (tree.kind) {
    case YamlTree::Kind::kNull:
      break;
    case YamlTree::Kind::kScalar:
      return tree.quoted ? text_value(tree.text) : plain_value(tree.text);
    case YamlTree::Kind::kList:
      value.type = Type::kArray;
      for (const auto& item : tree.items) {
        value.items.push_back(json_of(*item));
      }
      break;
    case YamlTree::Kind::kMap:
      value.type = Type::kObject;
      for (const auto& entry : tree.entries) {
        value.members.push_back({entry.key, json_of(*entry.value)});
      }
      break;
  }
  return value;
}

}  // namespace specdec
