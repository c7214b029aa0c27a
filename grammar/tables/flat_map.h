#pragma once
#include <cstdint>

#include "grammar/tables/hash.h"
#include "grammar/tables/hash_slots.h"

namespace specdec {

/// Numbers by 64-bit keys, all in one piece: quick to add to.
class FlatMap {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  /// The value of a key; kNone when there is none.
  uint32_t find(uint64_t key) const {
    const Entry* found =
        entries_.find(hash(key), [&](const Entry& entry) { return entry.key == key; });
    return found == nullptr ? kNone : found->value;
  }

  /// The key must be new; the value is not kNone.
  void add(uint64_t key, uint32_t value) {
    entries_.add({key, value}, [](const Entry& entry) { return hash(entry.key); });
  }

  uint64_t bytes() const { return entries_.bytes(); }

 private:
  struct Entry {
    uint64_t key;
    uint32_t value;
    constexpr bool operator==(const Entry& other) const {
      return value == other.value && key == other.key;
    }
  };

  static uint64_t hash(uint64_t key) { return WordHash().add(key).value(); }

  HashSlots<Entry, Entry{0, kNone}> entries_;
};

}  // namespace specdec
