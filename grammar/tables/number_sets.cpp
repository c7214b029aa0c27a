#include "grammar/tables/number_sets.h"

#include <bit>

namespace specdec {

/// The bit in which the halves of a node differ first, alone.
uint32_t NumberSets::first_difference(const Node& node) const {
  return std::bit_floor(node.least ^ nodes_[node.high].least);
}

/// All numbers of one are below those of the other.
NumberSets::Id NumberSets::unite(Id a, Id b) {
  const bool in_order = nodes_[a].least < nodes_[b].least;
  const Id low = in_order ? a : b;
  const Id high = in_order ? b : a;
  return nodes_.intern({low, high, nodes_[low].least, nodes_[low].size + nodes_[high].size});
}

NumberSets::Id NumberSets::with(Id set, uint32_t number) {
  const Node node = nodes_[set];
  if (node.size == 1 && node.least == number) {
    return set;
  }
  const Id single = nodes_.intern({kEmpty, kEmpty, number, 1});
  if (node.size == 0) {
    return single;
  }
  const uint32_t bit = node.size == 1 ? 0 : first_difference(node);
  if (std::bit_floor(node.least ^ number) > bit) {
    return unite(set, single);
  }
  return (number & bit) == 0 ? unite(with(node.low, number), node.high)
                             : unite(node.low, with(node.high, number));
}

bool NumberSets::contains(Id set, uint32_t number) const {
  while (nodes_[set].size > 1) {
    const Node& node = nodes_[set];
    set = (number & first_difference(node)) == 0 ? node.low : node.high;
  }
  return nodes_[set].size == 1 && nodes_[set].least == number;
}

std::vector<uint32_t> NumberSets::numbers(Id set) const {
  std::vector<uint32_t> found;
  std::vector<Id> open = {set};
  while (!open.empty()) {
    const Node& node = nodes_[open.back()];
    open.pop_back();
    if (node.size == 1) {
      found.push_back(node.least);
    } else if (node.size > 1) {
      open.insert(open.end(), {node.high, node.low});
    }
  }
  return found;
}

}  // namespace specdec
