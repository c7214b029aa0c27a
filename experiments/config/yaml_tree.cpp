#include "experiments/config/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <charconv>
#include <cstdint>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "experiments/config/yaml_advice.h"
#include "experiments/config/yaml_brackets.h"

namespace specdec {
namespace {

constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxValues = 10000;
constexpr size_t kMaxBytes = size_t{4} << 20U;

/// Whether the quoted scalar that begins at `begin` ends: yaml-cpp takes the end of the file for
/// it.
bool is_quote_closed(const std::string& text, size_t begin) {
  if (begin >= text.size() || (text[begin] != '\'' && text[begin] != '"')) {
    return true;
  }
  const char quote = text[begin];
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || i + 1 == text.size() || text[i + 1] != quote) {
        return true;
      }
      ++i;  // '' stands for one quote
    }
  }
  return false;
}

/// Builds the tree from the parser's events. YAML::Node is not used: it keeps duplicate keys
/// silently, loses whether a scalar was quoted and shares nodes between aliases.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& text, const std::string& source, bool number_lines)
      : text_(text), source_(source), number_lines_(number_lines) {}

  std::shared_ptr<YamlTree> root() { return root_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    if (expects_key()) {
      fail(mark, "a key is missing before ':'");
    }
    add(mark, YamlTree::Kind::kNull);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(mark, "aliases (*name) are not supported; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    if (tag != "?" && tag != "!" && !tag.empty()) {
      fail(mark, "tags (" + tag + ") are not supported");
    }
    if (tag == "!" && !is_quote_closed(text_, static_cast<size_t>(mark.pos))) {
      fail(mark, "a quote is not closed");
    }
    if (expects_key()) {
      accept_key(mark, value);
      return;
    }
    auto& node = add(mark, YamlTree::Kind::kScalar);
    node.text = value;
    node.quoted = tag == "!";
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, anchor, YamlTree::Kind::kList);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, anchor, YamlTree::Kind::kMap);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Level {
    YamlTree* node;
    bool has_key = false;
    std::string key, key_place;
  };

  std::string place(const YAML::Mark& mark) const {
    return number_lines_ ? fmt::format("{}:{}", source_, mark.line + 1) : source_;
  }
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& message) const {
    throw ConfigError(place(mark) + ": " + message);
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) {
      fail(mark, "anchors (&name) are not supported; write the value out");
    }
  }
  bool expects_key() const {
    return !open_.empty() && open_.back().node->kind == YamlTree::Kind::kMap &&
           !open_.back().has_key;
  }
  void accept_key(const YAML::Mark& mark, const std::string& key) {
    Level& level = open_.back();
    if (key == "<<") {
      fail(mark, "merge keys (<<) are not supported; write the values out");
    }
    if (const auto* earlier = level.node->find(key)) {
      fail(mark, fmt::format("the key '{}' is given twice{}", key,
                             number_lines_ ? " (first at " + earlier->place + ")" : ""));
    }
    level.has_key = true;
    level.key = key;
    level.key_place = place(mark);
  }
  YamlTree& add(const YAML::Mark& mark, YamlTree::Kind kind) {
    if (++count_ > kMaxValues) {
      fail(mark, fmt::format("more than {} values", kMaxValues));
    }
    auto node = std::make_shared<YamlTree>();
    node->kind = kind;
    node->place = place(mark);
    YamlTree& added = *node;
    if (open_.empty()) {
      root_ = std::move(node);
      return added;
    }
    Level& level = open_.back();
    if (level.node->kind == YamlTree::Kind::kList) {
      level.node->items.push_back(std::move(node));
    } else {
      level.node->entries.push_back({level.key, level.key_place, std::move(node)});
      level.has_key = false;
    }
    return added;
  }
  void open(const YAML::Mark& mark, YAML::anchor_t anchor, YamlTree::Kind kind) {
    refuse_anchor(mark, anchor);
    if (expects_key()) {
      fail(mark, "a key must be a plain word, not a list or a map");
    }
    if (open_.size() >= kMaxDepth) {
      fail(mark, fmt::format("nested deeper than {} levels", kMaxDepth));
    }
    open_.push_back({&add(mark, kind), false, {}, {}});
  }

  const std::string& text_;
  std::string source_;
  bool number_lines_;
  std::shared_ptr<YamlTree> root_;
  std::vector<Level> open_;
  size_t count_ = 0;
};

/// Brackets open at once; refused early, since the scanner itself recurses over them.
void refuse_deep_brackets(const std::string& text, const std::string& source) {
  size_t depth = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') {
      if (++depth > 1000) {
        throw ConfigError(source + ": too many open brackets");
      }
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
}

/// The parser only says where it could not go on, which may be many lines below the bracket.
void refuse_bracket_mistake(const std::string& text, const std::string& source, bool number_lines) {
  const BracketMistake mistake = find_bracket_mistake(text);
  if (!mistake.message.empty()) {
    throw ConfigError(number_lines ? fmt::format("{}:{}: {}", source, mistake.line, mistake.message)
                                   : fmt::format("{}: {}", source, mistake.message));
  }
}

bool is_index(const std::string& text, size_t& index) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), index);
  return failure == std::errc() && end == text.data() + text.size();
}

/// What an item of a list goes by: its name, else its type, as a strategy without a name does; ""
/// = neither.
std::string item_name(const YamlTree& item) {
  for (const char* key : {"name", "type"}) {
    const auto* entry = item.find(key);
    if (entry != nullptr && entry->value->kind == YamlTree::Kind::kScalar) {
      return entry->value->text;
    }
  }
  return "";
}

/// "autoregressive, 1": an item that has no name goes by its index.
std::string names_of_items(const YamlTree& list) {
  std::string names;
  for (size_t i = 0; i < list.items.size(); ++i) {
    const std::string name = item_name(*list.items[i]);
    names += (names.empty() ? "" : ", ") + (name.empty() ? std::to_string(i) : name);
  }
  return names;
}

/// nullptr for no item, and for a type that several have.
std::shared_ptr<YamlTree>* find_item(YamlTree& list, const std::string& segment) {
  size_t index = 0;
  if (is_index(segment, index)) {
    return index < list.items.size() ? &list.items[index] : nullptr;
  }
  std::vector<std::shared_ptr<YamlTree>*> typed;
  for (auto& item : list.items) {
    const bool is_meant = item_name(*item) == segment;
    if (is_meant && item->find("name") != nullptr) {
      return &item;
    }
    if (is_meant) {
      typed.push_back(&item);
    }
  }
  return typed.size() == 1 ? typed.front() : nullptr;
}

}  // namespace

std::shared_ptr<YamlTree> YamlTree::map(std::string place) {
  auto tree = std::make_shared<YamlTree>();
  tree->kind = Kind::kMap;
  tree->place = std::move(place);
  return tree;
}

std::shared_ptr<YamlTree> YamlTree::scalar(std::string text, bool quoted) {
  auto tree = std::make_shared<YamlTree>();
  tree->kind = Kind::kScalar;
  tree->text = std::move(text);
  tree->quoted = quoted;
  return tree;
}

const YamlTree::Entry* YamlTree::find(std::string_view key) const {
  for (const auto& entry : entries) {
    if (entry.key == key) {
      return &entry;
    }
  }
  return nullptr;
}

void YamlTree::set(const std::string& key, const std::string& new_place,
                   std::shared_ptr<YamlTree> value) {
  for (auto& entry : entries) {
    if (entry.key == key) {
      entry.place = new_place;
      entry.value = std::move(value);
      return;
    }
  }
  entries.push_back({key, new_place, std::move(value)});
}

std::shared_ptr<YamlTree> YamlTree::clone() const {
  auto copy = std::make_shared<YamlTree>(*this);
  for (auto& item : copy->items) {
    item = item->clone();
  }
  for (auto& entry : copy->entries) {
    entry.value = entry.value->clone();
  }
  return copy;
}

std::shared_ptr<YamlTree> parse_yaml(const std::string& text, const std::string& source,
                                     bool number_lines) {
  if (text.size() > kMaxBytes) {
    throw ConfigError(
        fmt::format("{}: larger than {} MiB; is this a config?", source, kMaxBytes >> 20U));
  }
  if (text.find('\0') != std::string::npos) {
    throw ConfigError(source + ": holds NUL bytes; is this a YAML file?");
  }
  if (const int64_t line = line_without_utf8(text); line > 0) {
    throw ConfigError((number_lines ? fmt::format("{}:{}", source, line) : source) +
                      ": holds bytes that are no UTF-8; save the text as UTF-8");
  }
  refuse_deep_brackets(text, source);
  TreeBuilder builder(text, source, number_lines);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    const bool found = parser.HandleNextDocument(builder);
    auto root = builder.root();
    if (found && parser.HandleNextDocument(builder)) {
      const bool are_several = text.find("\n---") != std::string::npos;
      throw ConfigError(source + (are_several ? ": holds several YAML documents (---); give one"
                                              : ": holds more text behind the end of its map, list "
                                                "or quoted text: leave that out, or move it "
                                                "inside"));
    }
    return found && root != nullptr ? root : YamlTree::map(source);
  } catch (const YAML::Exception& exception) {
    refuse_bracket_mistake(text, source, number_lines);
    YamlMistake mistake = yaml_mistake(text, exception.mark.line + 1, exception.msg);
    // In flow and block scalars alike, a tab in the margin is what trips people most often.
    if (text.find('\t') != std::string::npos) {
      mistake.message += " (the file holds tabs; YAML indents with spaces)";
    }
    throw ConfigError(number_lines && !exception.mark.is_null()
                          ? fmt::format("{}:{}: {}", source, mistake.line, mistake.message)
                          : fmt::format("{}: {}", source, mistake.message));
  } catch (const ConfigError&) {
    refuse_bracket_mistake(text, source, number_lines);
    throw;
  }
}

void set_at_path(YamlTree& root, const std::string& path, std::shared_ptr<YamlTree> value,
                 const std::string& place) {
  YamlTree* node = &root;
  size_t begin = 0;
  while (true) {
    const size_t dot = path.find('.', begin);
    const bool last = dot == std::string::npos;
    const std::string segment = path.substr(begin, last ? dot : dot - begin);
    const std::string here = path.substr(0, begin == 0 ? 0 : begin - 1);
    if (segment.empty()) {
      throw ConfigError(fmt::format("{}: '{}' is not a dotted path of keys", place, path));
    }
    if (node->kind == YamlTree::Kind::kNull) {
      node->kind = YamlTree::Kind::kMap;
    }
    if (node->kind == YamlTree::Kind::kList) {
      auto* item = find_item(*node, segment);
      if (item == nullptr) {
        const std::string names = names_of_items(*node);
        throw ConfigError(fmt::format("{}: '{}' names no item of '{}'; it has {} items{}{}", place,
                                      segment, here, node->items.size(), names.empty() ? "" : ": ",
                                      names));
      }
      if (last) {
        *item = std::move(value);
        return;
      }
      node = item->get();
    } else if (node->kind == YamlTree::Kind::kMap) {
      if (last) {
        node->set(segment, place, std::move(value));
        return;
      }
      if (node->find(segment) == nullptr) {
        node->set(segment, place, YamlTree::map(place));
      }
      node = node->find(segment)->value.get();
    } else {
      throw ConfigError(
          fmt::format("{}: '{}' is a value, so '{}' is not in it", place, here, segment));
    }
    begin = dot + 1;
  }
}

}  // namespace specdec
