#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/kernels/cuda/cuda_tree.h"

/// What tests of trees that are drawn by rows of logits share.
namespace specdec {

inline constexpr int64_t kTreeVocab = 300;

/// Three levels; the nodes 0 to 3, 6 and 7 have children.
inline const std::vector<int64_t> kTreeParents = {-1, 0, 0, 0, 1, 1, 1, 2, 3, 3, 6, 7, 7};
inline const std::vector<int64_t> kTreeRanks = {0, 0, 1, 2, 0, 1, 3, 0, 1, 2, 0, 0, 1};

/// Logits after the nodes that have children, in their order; many are equal.
inline at::Tensor tree_logits(uint64_t seed) {
  at::manual_seed(seed);
  return (at::randn({6, kTreeVocab}) * 8).round() / 4;
}

inline std::unique_ptr<DraftTreeDrawing> begin_tree(const TreeRequest& request, int64_t vocab,
                                                    TreeMemory& memory) {
  return cuda_tree(request, vocab, at::kCPU, memory, std::make_shared<void*>(nullptr));
}

}  // namespace specdec
