#pragma once
#include <cstdint>
#include <vector>

namespace specdec {

/// The strongly connected components of a graph (Tarjan 1972, without recursion). `edges[i]` are
/// the nodes that i points to. A component comes after all others that it points to.
std::vector<std::vector<uint32_t>> components_of(const std::vector<std::vector<uint32_t>>& edges);

}  // namespace specdec
