#pragma once
#include <algorithm>
#include <utility>
#include <vector>

namespace specdec {

/// A map in one piece of memory, by keys that mostly come in their order: quick to copy.
template <class Key, class Value>
class SortedMap {
 public:
  using Entry = std::pair<Key, Value>;

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

  /// The value of a key; nullptr when there is none.
  const Value* find(const Key& key) const {
    const auto at = std::ranges::lower_bound(entries_, key, {}, &Entry::first);
    return at != entries_.end() && at->first == key ? &at->second : nullptr;
  }

  /// Made when it is new.
  Value& operator[](const Key& key) {
    auto at = entries_.end();
    if (!entries_.empty() && !(entries_.back().first < key)) {
      at = std::ranges::lower_bound(entries_, key, {}, &Entry::first);
    }
    if (at == entries_.end() || at->first != key) {
      at = entries_.emplace(at, key, Value());
    }
    return at->second;
  }

 private:
  std::vector<Entry> entries_;
};

}  // namespace specdec
