#pragma once
#include <memory>

#include "core/kernels/metal/kernel_queue.h"
#include "core/kernels/ops.h"

namespace specdec {

/// Ops by the Metal kernels, on tensors of a device. Weights are in the layout kRows and not
/// arranged; everything else is float32 but the numbers of tokens. Ids of tokens and a RowTable may
/// lie on the host and go up with their op; nothing is read back. Owns the kernels' workspace: one
/// forward at a time. Throws Error for what no kernel takes (float64, int8 activations).
std::shared_ptr<Ops> metal_ops(at::Device device, std::unique_ptr<mps::KernelQueue> queue);

/// Ops on an Apple GPU, by a queue of their own. Only in builds for macOS.
std::shared_ptr<Ops> mps_ops(at::Device device);

}  // namespace specdec
