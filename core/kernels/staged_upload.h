#pragma once
#include <ATen/core/Tensor.h>

/// Copies of small tables of the host to a device that the host does not wait for: it waits for a
/// copy from memory that is not pinned, and so for what was launched before it.
namespace specdec {

/// Copies numbers of the host to memory on a device, as many bytes as that has, in order with ops.
/// To CUDA from pinned memory that LibTorch keeps until it is copied, so `numbers` may change at
/// once, as they may where the host waits. InternalError for memory in pieces.
void upload(const void* numbers, const at::Tensor& to);

/// A tensor on a device: a contiguous one of the host is uploaded (InternalError if it is not), one
/// that lies there is itself.
at::Tensor uploaded(const at::Tensor& numbers, at::Device device);

}  // namespace specdec
