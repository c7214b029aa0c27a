#pragma once
#include <memory>

#include "core/kernels/copy_queue.h"

namespace specdec {

/// Copies on a stream of a device, beside the ops on its default stream (cuda_ops). Memory comes
/// from LibTorch's allocators, and is given back when the copies that were queued are done.
std::shared_ptr<CopyQueue> cuda_copy_queue(at::Device device);

}  // namespace specdec
