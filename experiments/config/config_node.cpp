#include "experiments/config/config_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/hub_cache.h"
#include "experiments/config/config_node_state.h"

namespace specdec {

namespace {

/// `path` as it is seen from a folder, which may not exist yet.
std::string path_from(const std::filesystem::path& folder, const std::filesystem::path& path) {
  std::error_code ignored;
  const auto from = std::filesystem::relative(path, std::filesystem::absolute(folder), ignored);
  return (from.empty() ? std::filesystem::absolute(path) : from).string();
}

}  // namespace

std::filesystem::path plain_path(const std::filesystem::path& path) {
  std::error_code ignored;
  auto plain = path.lexically_normal();
  return std::filesystem::equivalent(plain, path, ignored) ? plain : path;
}

std::shared_ptr<YamlTree> component_tree(const std::shared_ptr<YamlTree>& value) {
  if (value->kind != YamlTree::Kind::kScalar) {
    return value;
  }
  auto typed = YamlTree::map(value->place);
  typed->set("type", value->place, value->clone());
  return typed;
}

ConfigNode::ConfigNode() : ConfigNode(YamlTree::map("config"), std::make_shared<ConfigErrors>()) {}

ConfigNode::ConfigNode(std::shared_ptr<const YamlTree> tree, std::shared_ptr<ConfigErrors> errors,
                       std::filesystem::path folder)
    : state_(std::make_shared<State>()) {
  if (tree->kind != YamlTree::Kind::kMap) {
    errors->add(tree->place, "", "expected a map of keys, found " + describe(*tree));
    tree = YamlTree::map(tree->place);
  }
  *state_ = {std::move(tree), std::move(errors), std::move(folder), "", {}};
}

bool ConfigNode::has(std::string_view key) const {
  const auto* entry = state_->tree->find(key);
  if (entry != nullptr && entry->value->kind == YamlTree::Kind::kNull) {
    state_->know(std::string(key));  // given as absent, and known to whoever asks
    return false;
  }
  return entry != nullptr;
}

bool ConfigNode::is_map(std::string_view key) const {
  return has(key) && state_->tree->find(key)->value->kind == YamlTree::Kind::kMap;
}

bool ConfigNode::is_list(std::string_view key) const {
  return has(key) && state_->tree->find(key)->value->kind == YamlTree::Kind::kList;
}

bool ConfigNode::is_name(std::string_view key) const {
  const auto* entry = state_->tree->find(key);
  if (entry == nullptr || entry->value->kind != YamlTree::Kind::kScalar) {
    return false;
  }
  YamlTree value = *entry->value;
  value.quoted = false;  // "4" is a number with quotes, and no name
  double number = 0.0;
  bool flag = false;
  return !read_scalar(value, Range<double>{}, number).empty() &&
         !read_scalar(value, Range<bool>{}, flag).empty();
}

std::filesystem::path ConfigNode::require_path(const std::string& key) const {
  return require_file(key, /*of_hub=*/false);
}

std::filesystem::path ConfigNode::require_model(const std::string& key) const {
  return require_file(key, /*of_hub=*/true);
}

std::filesystem::path ConfigNode::require_file(const std::string& key, bool of_hub) const {
  if (state_->tree->find(key) == nullptr && !state_->absent) {
    state_->errors->add(place(), state_->path,
                        fmt::format("the key '{}' is missing; give {}", key,
                                    of_hub ? "the folder of a model or head, or a GGUF file"
                                           : "the path of a file or folder"));
  }
  const auto text = get<std::string>(key, "");
  if (text.empty()) {
    if (has(key)) {
      fail(key, "the path is empty");
    }
    return {};
  }
  if (text.find('\0') != std::string::npos) {
    fail(key, "the path holds a NUL byte");
    return {};
  }
  std::error_code ignored;
  const std::filesystem::path path = text;
  const auto beside = state_->folder / path;
  for (const auto& found : {path, plain_path(beside)}) {
    if ((found == path || path.is_relative()) && std::filesystem::exists(found, ignored)) {
      return state_->know(key).path = found;
    }
  }
  const auto here = std::filesystem::absolute(path, ignored).lexically_normal();
  const auto there = std::filesystem::absolute(beside, ignored).lexically_normal();
  std::string message = here == there || path.is_absolute()
                            ? fmt::format("'{}' does not exist", here.string())
                            : fmt::format("'{}' does not exist: neither {} nor {}", text,
                                          here.string(), there.string());
  if (of_hub && parse_hub_name(text)) {
    try {
      return state_->know(key).path = find_model(text);
    } catch (const WeightsError& error) {
      message += fmt::format("; {}", error.what());
    }
  }
  fail(key, message);
  return {};
}

ConfigNode ConfigNode::child(const std::string& key, bool required) const {
  auto& known = state_->know(key);
  if (!known.children.empty() && !known.is_list) {
    return ConfigNode(std::static_pointer_cast<State>(known.children[0]));
  }
  const auto* entry = state_->tree->find(key);
  std::shared_ptr<const YamlTree> tree;
  bool absent = false;
  if (entry != nullptr && entry->value->kind == YamlTree::Kind::kMap) {
    tree = entry->value;
  } else if (entry != nullptr && entry->value->kind != YamlTree::Kind::kNull) {
    fail(key, "expected a map, found " + describe(*entry->value));
    absent = true;
  } else if (required) {
    if (!state_->absent) {
      state_->errors->add(place(), state_->path,
                          fmt::format("the key '{}' is missing; give a map", key));
    }
    absent = true;
  }
  if (tree == nullptr) {
    tree = YamlTree::map(entry != nullptr ? entry->place : place());
  }
  auto state = state_->make_child(state_->path_of(key), std::move(tree));
  state->absent = absent;
  known.children.push_back(state);
  return ConfigNode(std::move(state));
}

std::vector<ConfigNode> ConfigNode::children(const std::string& key) const {
  auto& known = state_->know(key);
  known.is_list = true;
  std::vector<ConfigNode> nodes;
  for (const auto& child : known.children) {  // read before
    nodes.push_back(ConfigNode(std::static_pointer_cast<State>(child)));
  }
  if (!nodes.empty()) {
    return nodes;
  }
  const auto* entry = state_->tree->find(key);
  if (entry == nullptr) {
    state_->errors->add(place(), state_->path,
                        fmt::format("the key '{}' is missing; give a list", key));
    return nodes;
  }
  if (entry->value->kind != YamlTree::Kind::kList) {
    fail(key, "expected a list, found " + describe(*entry->value));
    return nodes;
  }
  for (size_t i = 0; i < entry->value->items.size(); ++i) {
    std::shared_ptr<const YamlTree> item = entry->value->items[i];
    const auto item_path = fmt::format("{}[{}]", state_->path_of(key), i);
    if (item->kind != YamlTree::Kind::kMap) {
      state_->errors->add(item->place, item_path, "expected a map, found " + describe(*item));
      continue;
    }
    auto state = state_->make_child(item_path, std::move(item));
    known.children.push_back(state);
    nodes.push_back(ConfigNode(std::move(state)));
  }
  return nodes;
}

ConfigNode ConfigNode::component(const std::string& key) const {
  state_->expand(key, component_tree);
  return child(key);
}

ConfigNode ConfigNode::component(const std::string& key, const std::string& usual_type) const {
  state_->expand(key, component_tree);
  auto node = child(key, false);
  if (node.state_->tree->find("type") == nullptr) {
    auto tree = node.state_->tree->clone();
    tree->set("type", tree->place, YamlTree::scalar(usual_type, true));
    node.state_->tree = std::move(tree);
  }
  return node;
}

std::vector<ConfigNode> ConfigNode::components(const std::string& key) const {
  state_->expand(key, [](const std::shared_ptr<YamlTree>& value) {
    auto list = std::make_shared<YamlTree>(*value);
    for (auto& item : list->items) {
      item = component_tree(item);
    }
    return list;
  });
  return children(key);
}

std::shared_ptr<const YamlTree> ConfigNode::raw(const std::string& key) const {
  auto& known = state_->know(key);
  const auto* entry = state_->tree->find(key);
  if (entry == nullptr) {
    return nullptr;
  }
  known.value = entry->value->clone();
  return entry->value;
}

void ConfigNode::fail(const std::string& message) const {
  // What keys make together may be an override's doing: then the line of the map is no help.
  const auto& entries = state_->tree->entries;
  const auto found = std::find_if(entries.rbegin(), entries.rend(), [](const auto& entry) {
    return entry.place.rfind(kOverridePlace, 0) == 0;
  });
  state_->errors->add(found == entries.rend() ? place() : found->place, state_->path, message);
}

void ConfigNode::fail(const std::string& key, const std::string& message) const {
  const auto* entry = state_->tree->find(key);
  state_->errors->add(entry != nullptr ? entry->place : place(), state_->path_of(key), message);
}

void ConfigNode::fail_at(const std::string& key, const std::string& message) const {
  const auto* entry = state_->tree->find(key);
  state_->errors->add(entry != nullptr ? entry->place : place(), state_->path, message);
}

std::string ConfigNode::require_type(const std::vector<std::string>& known,
                                     const std::string& advice,
                                     const std::map<std::string, std::string>& explained) const {
  auto& type = state_->know("type");
  const auto given = read<std::string>("type", {});
  if (given && std::find(known.begin(), known.end(), *given) != known.end()) {
    type.value = scalar_tree(*given);
    return *given;
  }
  if (given && explained.count(*given) > 0) {
    fail_at("type", explained.at(*given));
  } else if (given) {
    fail_at("type",
            fmt::format("unknown type '{}'{}{}", *given, known_names_text(*given, known), advice));
  } else if (state_->tree->find("type") == nullptr && !state_->absent) {
    fail(fmt::format("the key 'type' is missing; known: {}{}", join_names(known), advice));
  }
  state_->takes_any_key = true;
  return "";
}

void ConfigNode::refuse_unknown_keys() const {
  if (state_->takes_any_key) {
    return;
  }
  std::vector<std::string> names;
  for (const auto& known : state_->known) {
    names.push_back(known.key);
  }
  if (names.empty() && !state_->errors->empty()) {
    return;  // of which nothing was read, because of another mistake
  }
  for (const auto& entry : state_->tree->entries) {
    if (std::find(names.begin(), names.end(), entry.key) != names.end()) {
      continue;
    }
    state_->errors->add(entry.place, state_->path_of(entry.key),
                        "unknown key" + known_names_text(entry.key, names));
  }
  for (const auto& known : state_->known) {
    for (const auto& child : known.children) {
      ConfigNode(std::static_pointer_cast<State>(child)).refuse_unknown_keys();
    }
  }
}

void ConfigNode::refuse_old_name(const std::string& old_key, const std::string& key) const {
  if (has(old_key)) {
    ignore(old_key);
    fail(old_key, fmt::format("is now called '{}'", key));
  }
}

void ConfigNode::ignore(const std::string& key) const { state_->know(key); }

std::shared_ptr<YamlTree> ConfigNode::resolved(const std::filesystem::path& folder) const {
  auto tree = YamlTree::map(place());
  for (const auto& known : state_->known) {
    if (known.is_list && known.value == nullptr) {
      auto list = std::make_shared<YamlTree>();
      list->kind = YamlTree::Kind::kList;
      for (const auto& child : known.children) {
        list->items.push_back(ConfigNode(std::static_pointer_cast<State>(child)).resolved(folder));
      }
      tree->set(known.key, "", list);
    } else if (!known.children.empty()) {
      tree->set(known.key, "",
                ConfigNode(std::static_pointer_cast<State>(known.children[0])).resolved(folder));
    } else if (known.value != nullptr) {
      const bool moves = !folder.empty() && !known.path.empty() &&
                         std::filesystem::path(known.value->text).is_relative();
      tree->set(known.key, "", moves ? scalar_tree(path_from(folder, known.path)) : known.value);
    }
  }
  return tree;
}

const std::filesystem::path& ConfigNode::folder() const { return state_->folder; }
const std::string& ConfigNode::path() const { return state_->path; }
const std::string& ConfigNode::place() const { return state_->tree->place; }
const std::shared_ptr<ConfigErrors>& ConfigNode::errors() const { return state_->errors; }

}  // namespace specdec
