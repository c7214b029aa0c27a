#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace specdec {

/// The hash table below the others: open addressing in a power of two of slots, of which at most
/// half are taken. A slot is a small value, such as a number that tells where the key is; one that
/// is equal to `kEmpty` is free. Whoever has the keys says how they hash and compare.
template <class Slot, Slot kEmpty>
class HashSlots {
 public:
  /// The slot with that hash for which `matches` is true; nullptr when there is none.
  template <class Matches>
  const Slot* find(uint64_t hash, const Matches& matches) const {
    if (slots_.empty()) {
      return nullptr;
    }
    size_t at = hash & (slots_.size() - 1);
    for (; !(slots_[at] == kEmpty); at = (at + 1) & (slots_.size() - 1)) {
      if (matches(slots_[at])) {
        return &slots_[at];
      }
    }
    return nullptr;
  }

  /// The key must be new. `hash_of` a slot is its key's hash.
  template <class HashOf>
  void add(const Slot& slot, const HashOf& hash_of) {
    if (2 * ++size_ > slots_.size()) {
      const size_t wanted = slots_.empty() ? 16 : 2 * slots_.size();
      for (const Slot& old : std::exchange(slots_, std::vector<Slot>(wanted, kEmpty))) {
        if (!(old == kEmpty)) {
          slots_[free_slot(hash_of(old))] = old;
        }
      }
    }
    slots_[free_slot(hash_of(slot))] = slot;
  }

  uint64_t bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  size_t free_slot(uint64_t hash) const {
    size_t at = hash & (slots_.size() - 1);
    while (!(slots_[at] == kEmpty)) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

/// Slots that are numbers.
using NumberSlots = HashSlots<uint32_t, ~uint32_t{0}>;

}  // namespace specdec
