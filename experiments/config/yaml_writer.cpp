#include "experiments/config/yaml_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace specdec {
namespace {

std::string quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

/// A word that cannot be taken for a number, a boolean, null or YAML's own signs.
bool is_plain_word(const std::string& text) {
  static constexpr std::string_view kTaken[] = {"true",  "True", "TRUE", "false", "False",
                                                "FALSE", "null", "Null", "NULL"};
  const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  return !text.empty() && letters.find(text[0]) != std::string::npos &&
         text.find_first_not_of(letters + "0123456789-./") == std::string::npos &&
         std::ranges::find(kTaken, text) == std::end(kTaken);
}

std::string scalar_text(const YamlTree& tree) {
  if (tree.kind == YamlTree::Kind::kNull) {
    return "null";
  }
  return tree.quoted && !is_plain_word(tree.text) ? quote(tree.text) : tree.text;
}

std::string key_text(const std::string& key) { return is_plain_word(key) ? key : quote(key); }

bool is_leaf(const YamlTree& tree) {
  return tree.kind == YamlTree::Kind::kNull || tree.kind == YamlTree::Kind::kScalar ||
         (tree.items.empty() && tree.entries.empty());
}

std::string leaf_text(const YamlTree& tree) {
  switch (tree.kind) {
    case YamlTree::Kind::kList:
      return "[]";
    case YamlTree::Kind::kMap:
      return "{}";
    default:
      return scalar_text(tree);
  }
}

/// Appends `tree` as block lines, each indented by `indent`, the first only when `indent_first`.
void write_block(const YamlTree& tree, size_t indent, bool indent_first, std::string& out) {
  bool indented = indent_first;
  const auto begin_line = [&] {
    out.append(indented ? indent : 0, ' ');
    indented = true;
  };
  for (const auto& item : tree.items) {
    begin_line();
    if (is_leaf(*item)) {
      out += fmt::format("- {}\n", leaf_text(*item));
    } else {
      out += "- ";
      write_block(*item, indent + 2, false, out);
    }
  }
  for (const auto& entry : tree.entries) {
    begin_line();
    if (is_leaf(*entry.value)) {
      out += fmt::format("{}: {}\n", key_text(entry.key), leaf_text(*entry.value));
    } else {
      out += fmt::format("{}:\n", key_text(entry.key));
      write_block(*entry.value, indent + 2, true, out);
    }
  }
}

}  // namespace

std::string write_yaml(const YamlTree& tree) {
  if (is_leaf(tree)) {
    return leaf_text(tree) + "\n";
  }
  std::string out;
  write_block(tree, 0, true, out);
  return out;
}

std::string write_yaml_flow(const YamlTree& tree) {
  if (is_leaf(tree)) {
    return leaf_text(tree);
  }
  std::string out;
  for (const auto& item : tree.items) {
    out += fmt::format("{}{}", out.empty() ? "" : ", ", write_yaml_flow(*item));
  }
  for (const auto& entry : tree.entries) {
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", key_text(entry.key),
                       write_yaml_flow(*entry.value));
  }
  return tree.kind == YamlTree::Kind::kList ? fmt::format("[{}]", out) : fmt::format("{{{}}}", out);
}

}  // namespace specdec
