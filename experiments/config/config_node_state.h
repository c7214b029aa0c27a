#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experiments/config/config_node.h"

namespace specdec {

/// What is known of one key, and what it resolved to.
struct KnownKey {
  std::string key;
  std::shared_ptr<YamlTree> value;              // a scalar or a list of scalars; or
  std::vector<std::shared_ptr<void>> children;  // states of child maps
  bool is_list = false;
  std::filesystem::path path;  // of a file or folder: where it was found, or is to be written
};

struct ConfigNode::State {
  std::shared_ptr<const YamlTree> tree;
  std::shared_ptr<ConfigErrors> errors;
  std::filesystem::path folder;
  std::string path;
  std::vector<KnownKey> known;
  bool absent = false;         // its absence is a mistake already, so that of its keys is none
  bool takes_any_key = false;  // its type is not known, so that its keys cannot be

  KnownKey& know(const std::string& key) {
    for (auto& entry : known) {
      if (entry.key == key) {
        return entry;
      }
    }
    known.push_back({key, nullptr, {}, false, {}});
    return known.back();
  }
  /// Replaces the value under a key, if there is one, by what `expanded` makes of it.
  template <class F>
  void expand(const std::string& key, const F& expanded) {
    if (const auto* entry = tree->find(key); entry != nullptr) {
      auto changed = std::make_shared<YamlTree>(*tree);
      changed->set(key, entry->place, expanded(entry->value));
      tree = std::move(changed);
    }
  }
  std::string path_of(const std::string& key) const {
    return path.empty() ? key : path + "." + key;
  }
  std::shared_ptr<State> make_child(const std::string& child_path,
                                    std::shared_ptr<const YamlTree> child_tree) const {
    auto child = std::make_shared<State>();
    *child = {std::move(child_tree), errors, folder, child_path, {}};
    return child;
  }
};

/// Without "..", unless a link makes that another place: what a file is called is recorded.
std::filesystem::path plain_path(const std::filesystem::path& path);

}  // namespace specdec
