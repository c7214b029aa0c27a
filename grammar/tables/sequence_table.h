#pragma once
#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

namespace specdec {

/// Sequences of words, numbered in the order in which they were first met: equal ones have the same
/// number.
class SequenceTable {
 public:
  SequenceTable() = default;
  SequenceTable(const SequenceTable&) = delete;
  SequenceTable& operator=(const SequenceTable&) = delete;

  /// The words may lie in this table.
  uint32_t intern(std::span<const uint32_t> words);
  /// A new number even when an equal sequence has one, which then stays the one that is found.
  uint32_t append(std::span<const uint32_t> words);
  /// Lives until the next sequence comes in.
  std::span<const uint32_t> operator[](uint32_t id) const {
    return {words_.data() + starts_[id], starts_[id + 1] - starts_[id]};
  }
  uint32_t size() const { return static_cast<uint32_t>(starts_.size() - 1); }

 private:
  struct Hash {
    const SequenceTable* table;
    size_t operator()(uint32_t id) const;
  };
  struct Same {
    const SequenceTable* table;
    bool operator()(uint32_t a, uint32_t b) const;
  };

  void push(std::span<const uint32_t> words);

  std::vector<uint32_t> words_;
  std::vector<size_t> starts_ = {0};
  std::unordered_set<uint32_t, Hash, Same> ids_{16, Hash{this}, Same{this}};
};

}  // namespace specdec
