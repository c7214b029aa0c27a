#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/tables/hash_slots.h"

namespace specdec {

/// Sequences of words, numbered in the order in which they were first met: equal ones have the same
/// number.
class SequenceTable {
 public:
  /// The words may lie in this table.
  uint32_t intern(std::span<const uint32_t> words);
  /// A new number even when an equal sequence has one, which then stays the one that is found.
  uint32_t append(std::span<const uint32_t> words);
  /// Lives until the next sequence comes in.
  std::span<const uint32_t> operator[](uint32_t id) const {
    return {words_.data() + starts_[id], starts_[id + 1] - starts_[id]};
  }
  uint32_t size() const { return static_cast<uint32_t>(starts_.size() - 1); }
  uint64_t bytes() const {
    return words_.capacity() * sizeof(uint32_t) + starts_.capacity() * sizeof(size_t) +
           ids_.bytes();
  }

 private:
  /// The number of an equal sequence, or nullptr.
  const uint32_t* find(std::span<const uint32_t> words) const;
  void push(std::span<const uint32_t> words);
  void note_newest();

  std::vector<uint32_t> words_;
  std::vector<size_t> starts_ = {0};
  NumberSlots ids_;
};

}  // namespace specdec
