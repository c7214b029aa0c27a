#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <unordered_map>
#include <utility>

namespace specdec {

/// Values by key that together take at most so many bytes: those that were not used for longest are
/// dropped, but never the newest one. What is dropped can be made again.
template <class Key, class Value, class Hash = std::hash<Key>>
class BoundedCache {
 public:
  /// What several values hold on to, which counts once.
  struct Shared {
    const void* what = nullptr;  ///< nullptr: nothing
    uint64_t bytes = 0;
  };
  struct Entry {
    Key key;
    Value value;
    uint64_t bytes = 0;
    Shared shared;
  };

  explicit BoundedCache(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  size_t size() const { return entries_.size(); }
  uint64_t bytes() const { return bytes_; }
  uint64_t max_bytes() const { return max_bytes_; }
  const std::list<Entry>& entries() const { return entries_; }  ///< the latest used first
  bool has(const Key& key) const { return index_.contains(key); }

  /// The value of a key; nullptr when there is none. It lives until the next one comes in.
  Value* find(const Key& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) {
      return nullptr;
    }
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->value;
  }

  /// The key must be new. `bytes`: of the value, beside what is shared.
  Value& add(const Key& key, Value value, uint64_t bytes, Shared shared = {}) {
    entries_.push_front({key, std::move(value), bytes + kPlace, shared});
    index_.emplace(key, entries_.begin());
    bytes_ += entries_.front().bytes;
    if (shared.what != nullptr && ++holders_[shared.what] == 1) {
      bytes_ += shared.bytes;
    }
    drop_down_to(max_bytes_);
    return entries_.front().value;
  }

  /// Counts values again that have grown: `bytes_of(value)`.
  template <class BytesOf>
  void recount(const BytesOf& bytes_of) {
    for (Entry& entry : entries_) {
      const uint64_t bytes = bytes_of(entry.value) + kPlace;
      bytes_ += bytes - entry.bytes;
      entry.bytes = bytes;
    }
    drop_down_to(max_bytes_);
  }

 private:
  static constexpr uint64_t kPlace = sizeof(Entry) + sizeof(Key) + 64;  ///< in list and index

  void drop_down_to(uint64_t bytes) {
    while (bytes_ > bytes && entries_.size() > 1) {
      const Entry& oldest = entries_.back();
      bytes_ -= oldest.bytes;
      const auto holders = holders_.find(oldest.shared.what);
      if (holders != holders_.end() && --holders->second == 0) {
        bytes_ -= oldest.shared.bytes;
        holders_.erase(holders);
      }
      index_.erase(oldest.key);
      entries_.pop_back();
    }
  }

  uint64_t max_bytes_;
  uint64_t bytes_ = 0;
  std::list<Entry> entries_;  ///< the latest used first
  std::unordered_map<Key, typename std::list<Entry>::iterator, Hash> index_;
  std::unordered_map<const void*, size_t> holders_;  ///< of what is shared
};

}  // namespace specdec
