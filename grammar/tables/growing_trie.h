#pragma once
#include <cstdint>
#include <vector>

#include "grammar/tables/flat_map.h"

namespace specdec {

/// Texts as a tree of their beginnings, to which more are added: equal texts are one node. Symbols
/// are bytes or code points. (TokenTrie is the tree of a whole vocabulary, which does not grow.)
class GrowingTrie {
 public:
  using Node = uint32_t;
  static constexpr Node kRoot = 0;  ///< the empty text
  static constexpr Node kNone = FlatMap::kNone;

  /// The text one symbol longer; kNone when it was not added.
  Node child(Node node, uint32_t symbol) const { return children_.find(key(node, symbol)); }
  /// The text one symbol longer, which is added when it is new: nodes are numbered as they are
  /// added.
  Node add(Node node, uint32_t symbol) {
    Node longer = child(node, symbol);
    if (longer == kNone) {
      longer = size();
      nodes_.push_back({.parent = node,
                        .symbol = symbol,
                        .length = length(node) + 1,
                        .sibling = nodes_[node].newest_child});
      nodes_[node].newest_child = longer;
      children_.add(key(node, symbol), longer);
    }
    return longer;
  }

  Node size() const { return static_cast<Node>(nodes_.size()); }
  Node parent(Node node) const { return nodes_[node].parent; }      ///< not of kRoot
  uint32_t symbol(Node node) const { return nodes_[node].symbol; }  ///< the last; not of kRoot
  uint32_t length(Node node) const { return nodes_[node].length; }
  /// Children, the newest first: newest_child, then the next_child of each; kNone at the end.
  Node newest_child(Node node) const { return nodes_[node].newest_child; }
  Node next_child(Node node) const { return nodes_[node].sibling; }

 private:
  struct Entry {
    Node parent = kNone;
    uint32_t symbol = 0;
    uint32_t length = 0;
    Node sibling = kNone;
    Node newest_child = kNone;
  };

  static uint64_t key(Node node, uint32_t symbol) { return uint64_t{node} << 32 | symbol; }

  std::vector<Entry> nodes_ = std::vector<Entry>(1);
  FlatMap children_;
};

}  // namespace specdec
