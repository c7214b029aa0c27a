#pragma once
#include <cstdint>
#include <vector>

#include "grammar/tables/hash.h"
#include "grammar/tables/intern_table.h"

namespace specdec {

/// Sets of numbers, numbered: equal sets have the same number. A set with one number more than
/// another shares most of its memory with it: each is a tree by the numbers' bits.
class NumberSets {
 public:
  using Id = uint32_t;
  static constexpr Id kEmpty = 0;

  NumberSets() { nodes_.add({}); }

  /// The set with that number as well.
  Id with(Id set, uint32_t number);
  bool contains(Id set, uint32_t number) const;
  uint32_t size(Id set) const { return nodes_[set].size; }
  /// Sorted.
  std::vector<uint32_t> numbers(Id set) const;

 private:
  /// All numbers of `low` are below those of `high`, and differ from them first in one bit. One
  /// number has neither.
  struct Node {
    Id low = kEmpty, high = kEmpty;
    uint32_t least = 0;  ///< of its numbers
    uint32_t size = 0;   ///< how many there are
    bool operator==(const Node&) const = default;
  };
  struct Hash {
    uint64_t operator()(const Node& node) const {
      return WordHash().add(uint64_t{node.low} << 32 | node.high).add(node.least).value();
    }
  };

  Id unite(Id a, Id b);
  uint32_t first_difference(const Node& node) const;

  InternTable<Node, Hash> nodes_;
};

}  // namespace specdec
