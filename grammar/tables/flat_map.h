#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "grammar/tables/intern_table.h"

namespace specdec {

/// Numbers by 64-bit keys, all in one piece: quick to add to.
class FlatMap {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  /// kNone when there is none.
  uint32_t find(uint64_t key) const { return entries_.empty() ? kNone : entries_[slot(key)].value; }

  /// The key must be new; the value is not kNone.
  void add(uint64_t key, uint32_t value) {
    if (2 * ++size_ > entries_.size()) {
      const std::vector<Entry> old =
          std::exchange(entries_, std::vector<Entry>(entries_.empty() ? 64 : 2 * entries_.size()));
      for (const Entry& entry : old) {
        if (entry.value != kNone) {
          entries_[slot(entry.key)] = entry;
        }
      }
    }
    entries_[slot(key)] = {key, value};
  }

 private:
  struct Entry {
    uint64_t key = 0;
    uint32_t value = kNone;
  };

  /// Where the key is, or would be.
  size_t slot(uint64_t key) const {
    size_t at = WordHash().add(key).value() & (entries_.size() - 1);
    while (entries_[at].value != kNone && entries_[at].key != key) {
      at = (at + 1) & (entries_.size() - 1);
    }
    return at;
  }

  std::vector<Entry> entries_;  ///< a power of two of them, at most half are taken
  size_t size_ = 0;
};

}  // namespace specdec
