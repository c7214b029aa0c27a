#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

#include "core/kernels/ops.h"

namespace specdec {

/// Calls the CUDA kernels (kernels.h) on tensors of a device, in order on its default stream.
/// Weights are in the layout kRows, those that are arranged (Linear::arrange) are multiplied on
/// tensor cores; everything else is float32 but the numbers of tokens. Ids of tokens and a RowTable
/// may lie on the host and go up with their op, except while a graph is recorded (records());
/// nothing is read back. Owns the kernels' workspace: one forward at a time. Throws Error when a
/// launch fails, or for what no kernel takes (float64, int8 activations).
std::shared_ptr<Ops> cuda_ops(at::Device device);

}  // namespace specdec
