#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <span>

#include "core/device_sampler.h"
#include "core/result_memory.h"

namespace specdec {

/// Memory of the trees that are drawn over a vocabulary on a device, kept as a ChainMemory is.
struct TreeMemory {
  TreeMemory(int64_t vocab, at::Device device);

  ResultMemory numbers;  ///< int32: tables and tokens
  ResultMemory probs;    ///< [nodes with children, vocab] float64; of best tokens those of a level
};

/// Draws a tree by the CUDA kernels (sampling_kernels.h), in order on the stream that `stream` says
/// then. Copies the tree's tables to the device at once, 8 bytes a node and 12 for each that has
/// children, and the masks of a level at once; reads 4 bytes for each node beside the root, and for
/// each that has children, back.
std::unique_ptr<DraftTreeDrawing> cuda_tree(const TreeRequest& tree, int64_t vocab,
                                            at::Device device, TreeMemory& memory,
                                            std::shared_ptr<void* const> stream);

/// DeviceSampler::rank by these kernels. Reads 12 bytes a candidate, 4 a row and 4 more back.
std::optional<DeviceCandidates> cuda_rank(const at::Tensor& logits, const SamplingParams& sampling,
                                          int64_t count, std::span<const NodeMask> masks);

}  // namespace specdec
