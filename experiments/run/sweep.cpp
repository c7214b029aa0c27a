#include "experiments/run/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "experiments/config/yaml_writer.h"

namespace specdec {
namespace {

constexpr size_t kMaxCombinations = 1000;

/// The last part of a dotted key, unless another swept key ends in the same.
std::string short_name(const std::string& key, const std::vector<std::string>& keys) {
  const auto last = [](const std::string& text) { return text.substr(text.rfind('.') + 1); };
  const auto same = std::count_if(
      keys.begin(), keys.end(), [&](const std::string& other) { return last(other) == last(key); });
  return same > 1 ? key : last(key);
}

std::string value_text(const YamlTree& tree) {
  std::string text = tree.kind == YamlTree::Kind::kScalar ? tree.text : write_yaml(tree);
  std::replace(text.begin(), text.end(), '\n', ' ');
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

void check_list(const ConfigNode& root, const YamlTree::Entry& entry) {
  const std::string path = "sweep." + entry.key;
  if (entry.value->kind != YamlTree::Kind::kList) {
    root.errors()->add(entry.place, path,
                       fmt::format("expected a list of values, found {}", describe(*entry.value)));
  } else if (entry.value->items.empty()) {
    root.errors()->add(entry.place, path, "the list of values is empty");
  } else if (entry.key == "sweep" || entry.key.rfind("sweep.", 0) == 0 || entry.key == "name" ||
             entry.key == "description") {
    root.errors()->add(entry.place, path, "this key cannot be swept");
  } else if (entry.key == "quality" || entry.key == "quality.margin") {
    root.errors()->add(
        entry.place, path,
        "this key cannot be swept: all rows of a report are held against one margin");
  } else if (entry.key == "loops") {
    root.errors()->add(entry.place, path, "this key cannot be swept: it is how the report counts");
  }
}

Combination combine(const Sweep& sweep, const std::vector<const YamlTree*>& lists, size_t index) {
  Combination combination;
  for (size_t i = lists.size(); i-- > 0;) {
    const auto& items = lists[i]->items;
    combination.trees.push_back(items[index % items.size()]);
    index /= items.size();
  }
  std::reverse(combination.trees.begin(), combination.trees.end());
  const auto add = [](std::string& text, const std::string& part) {
    text += text.empty() ? part : ", " + part;
  };
  for (size_t i = 0; i < lists.size(); ++i) {
    combination.values.push_back(value_text(*combination.trees[i]));
    const auto part =
        fmt::format("{}={}", short_name(sweep.keys[i], sweep.keys), combination.values.back());
    add(combination.label, part);
    add(is_condition(sweep.keys[i]) ? combination.condition : combination.choice, part);
  }
  return combination;
}

}  // namespace

bool is_condition(const std::string& key) {
  const std::string top = key.substr(0, key.find('.'));
  return top != "strategies" && top != "trace" && top != "log";
}

Sweep read_sweep(const ConfigNode& root) {
  Sweep sweep;
  const auto tree = root.raw("sweep");
  if (tree == nullptr || tree->kind == YamlTree::Kind::kNull) {
    return sweep;
  }
  if (tree->kind != YamlTree::Kind::kMap) {
    root.fail("sweep",
              "expected a map of keys to lists of values, such as "
              "{seed: [1, 2]}, found " +
                  describe(*tree));
    return sweep;
  }
  std::vector<const YamlTree*> lists;
  size_t count = 1;
  for (const auto& entry : tree->entries) {
    check_list(root, entry);
    if (entry.value->items.empty()) {
      return {};
    }
    sweep.keys.push_back(entry.key);
    sweep.places.push_back(entry.place);
    lists.push_back(entry.value.get());
    count *= entry.value->items.size();
    if (count > kMaxCombinations) {
      root.fail("sweep", fmt::format("more than {} combinations", kMaxCombinations));
      return {};
    }
  }
  std::set<std::string> labels;
  for (size_t i = 0; !lists.empty() && i < count; ++i) {
    sweep.combinations.push_back(combine(sweep, lists, i));
    const auto& label = sweep.combinations.back().label;
    if (!labels.insert(label).second) {
      root.fail("sweep", fmt::format("two points of the sweep are called '{}'", label));
    }
  }
  return sweep;
}

void apply_combination(YamlTree& root, const Sweep& sweep, const Combination& combination,
                       ConfigErrors& errors) {
  for (size_t i = 0; i < sweep.keys.size(); ++i) {
    try {
      set_at_path(root, sweep.keys[i], combination.trees[i]->clone(), sweep.places[i]);
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      errors.add(sweep.places[i], "sweep." + sweep.keys[i],
                 message.substr(std::min(message.size(), sweep.places[i].size() + 2)));
    }
  }
}

}  // namespace specdec
