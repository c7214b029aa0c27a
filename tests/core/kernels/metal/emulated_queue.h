#pragma once
#include <memory>
#include <vector>

#include "core/kernels/metal/kernel_queue.h"
#include "core/kernels/ops.h"

namespace specdec::mps {

/// The ops by the Metal kernels, run on the CPU. Memory is the host's. Each launch is also added to
/// `launches`, without its sizes, where there is such a list.
std::shared_ptr<Ops> emulated_metal_ops(std::vector<KernelLaunch>* launches = nullptr);

}  // namespace specdec::mps
