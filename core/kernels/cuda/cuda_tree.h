#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <span>

#include "core/device_sampler.h"

namespace specdec {

/// Draws a tree by the CUDA kernels (sampling_kernels.h), in order on the device's default stream.
/// Copies the tree's tables to the device at once, 4 bytes a node and 8 for each that has children,
/// and the masks of a level at once; reads 4 bytes for each node beside the root, and for each that
/// has children, back.
std::unique_ptr<DraftTreeDrawing> cuda_tree(const TreeRequest& tree, int64_t vocab,
                                            at::Device device);

/// DeviceSampler::rank by these kernels. Reads 12 bytes a candidate, 4 a row and 4 more back.
std::optional<DeviceCandidates> cuda_rank(const at::Tensor& logits, const SamplingParams& sampling,
                                          int64_t count, std::span<const NodeMask> masks);

}  // namespace specdec
