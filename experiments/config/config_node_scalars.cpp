// How a ConfigNode reads scalars, lists of them, and names of values.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "experiments/config/config_node.h"
#include "experiments/config/config_node_state.h"

namespace specdec {

template <class T>
std::optional<T> ConfigNode::read(const std::string& key, const Range<T>& range) const {
  const auto* entry = state_->tree->find(key);
  if (entry == nullptr) {
    return std::nullopt;
  }
  T value{};
  const auto message = read_scalar(*entry->value, range, value);
  if (!message.empty()) {
    state_->errors->add(entry->place, state_->path_of(key), message);
    return std::nullopt;
  }
  return value;
}

template <class T>
T ConfigNode::get(const std::string& key, const std::type_identity_t<T>& fallback,
                  const Range<T>& range) const {
  auto& known = state_->know(key);
  T value = read<T>(key, range).value_or(fallback);
  known.value = scalar_tree(value);
  return value;
}

template <class T>
T ConfigNode::require(const std::string& key, const Range<T>& range) const {
  if (state_->tree->find(key) == nullptr && !state_->absent) {
    state_->errors->add(
        place(), state_->path,
        fmt::format("the key '{}' is missing; give {}", key, scalar_type_name<T>()));
  }
  return get<T>(key, T{}, range);
}

template <class T>
std::optional<T> ConfigNode::find(const std::string& key, const Range<T>& range) const {
  auto& known = state_->know(key);
  if (!has(key)) {
    return std::nullopt;
  }
  auto value = read<T>(key, range);
  if (value) {
    known.value = scalar_tree(*value);
  }
  return value;
}

template <class T>
std::vector<T> ConfigNode::get_list(const std::string& key, const std::vector<T>& fallback,
                                    const Range<T>& range) const {
  auto& known = state_->know(key);
  std::vector<T> values;
  const auto* entry = state_->tree->find(key);
  if (entry == nullptr) {
    values = fallback;
  } else if (entry->value->kind != YamlTree::Kind::kList) {
    fail(key, "expected a list, found " + describe(*entry->value));
  } else {
    for (size_t i = 0; i < entry->value->items.size(); ++i) {
      const YamlTree& item = *entry->value->items[i];
      T value{};
      const auto message = read_scalar(item, range, value);
      if (message.empty()) {
        values.push_back(std::move(value));
      } else {
        state_->errors->add(item.place, fmt::format("{}[{}]", state_->path_of(key), i), message);
      }
    }
  }
  known.value = std::make_shared<YamlTree>();
  known.value->kind = YamlTree::Kind::kList;
  for (const auto& value : values) {
    known.value->items.push_back(scalar_tree<T>(value));
  }
  return values;
}

size_t ConfigNode::choose_name(const std::string& key, const std::vector<std::string>& names,
                               const std::string& fallback) const {
  const auto place_of = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  const auto name = get<std::string>(key, fallback);
  auto chosen = place_of(name);
  if (chosen == std::ssize(names)) {
    fail(key, fmt::format("unknown value '{}'{}", name, known_names_text(name, names)));
    chosen = place_of(fallback);
  }
  return static_cast<size_t>(chosen);
}

template std::optional<std::string> ConfigNode::read(const std::string&,
                                                     const Range<std::string>&) const;
template bool ConfigNode::get(const std::string&, const bool&, const Range<bool>&) const;
template bool ConfigNode::require(const std::string&, const Range<bool>&) const;
template std::optional<bool> ConfigNode::find(const std::string&, const Range<bool>&) const;
template int64_t ConfigNode::get(const std::string&, const int64_t&, const Range<int64_t>&) const;
template int64_t ConfigNode::require(const std::string&, const Range<int64_t>&) const;
template std::optional<int64_t> ConfigNode::find(const std::string&, const Range<int64_t>&) const;
template uint64_t ConfigNode::get(const std::string&, const uint64_t&,
                                  const Range<uint64_t>&) const;
template uint64_t ConfigNode::require(const std::string&, const Range<uint64_t>&) const;
template std::optional<uint64_t> ConfigNode::find(const std::string&, const Range<uint64_t>&) const;
template double ConfigNode::get(const std::string&, const double&, const Range<double>&) const;
template double ConfigNode::require(const std::string&, const Range<double>&) const;
template std::optional<double> ConfigNode::find(const std::string&, const Range<double>&) const;
template std::string ConfigNode::get(const std::string&, const std::string&,
                                     const Range<std::string>&) const;
template std::string ConfigNode::require(const std::string&, const Range<std::string>&) const;
template std::optional<std::string> ConfigNode::find(const std::string&,
                                                     const Range<std::string>&) const;
template std::vector<int64_t> ConfigNode::get_list(const std::string&, const std::vector<int64_t>&,
                                                   const Range<int64_t>&) const;
template std::vector<double> ConfigNode::get_list(const std::string&, const std::vector<double>&,
                                                  const Range<double>&) const;
template std::vector<std::string> ConfigNode::get_list(const std::string&,
                                                       const std::vector<std::string>&,
                                                       const Range<std::string>&) const;

}  // namespace specdec
