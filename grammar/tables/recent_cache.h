#pragma once
#include <cstddef>
#include <functional>
#include <list>
#include <unordered_map>
#include <utility>

namespace specdec {

/// Values by key, from the most to the least recently used one, so that the latter can be dropped.
template <class Key, class Value, class Hash = std::hash<Key>>
class RecentCache {
 public:
  size_t size() const { return entries_.size(); }
  const std::list<std::pair<Key, Value>>& entries() const { return entries_; }  ///< newest first

  /// nullptr when there is none. A value lives until it is dropped.
  Value* find(const Key& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) {
      return nullptr;
    }
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->second;
  }

  /// The key must be new.
  Value& add(const Key& key, Value value) {
    entries_.emplace_front(key, std::move(value));
    index_.emplace(key, entries_.begin());
    return entries_.front().second;
  }

  /// Drops the least recently used one and returns it; there must be one.
  std::pair<Key, Value> drop() {
    std::pair<Key, Value> oldest = std::move(entries_.back());
    entries_.pop_back();
    index_.erase(oldest.first);
    return oldest;
  }

 private:
  std::list<std::pair<Key, Value>> entries_;  ///< newest first
  std::unordered_map<Key, typename std::list<std::pair<Key, Value>>::iterator, Hash> index_;
};

}  // namespace specdec
