#pragma once
#include <c10/core/Device.h>

#include <memory>

#include "core/device_sampler.h"

namespace specdec {

/// Decides by the CUDA kernels (sampling_kernels.h), in order on the device's default stream;
/// chains and trees are drawn on the stream that `stream` says when tokens are drawn, nullptr =
/// that one. A decision copies tables of the draft to the device at once, and distributions that it
/// was drawn from; it reads 8 bytes a node and 8 more back at once, under a grammar 24 a node, and
/// of choices 28 a node. Keeps memory for float64 probabilities of the widest draft, and of the
/// longest chains and largest trees over each vocabulary twice. One decision at a time.
std::shared_ptr<DeviceSampler> cuda_sampler(
    at::Device device, std::shared_ptr<void* const> stream = std::make_shared<void*>(nullptr));

}  // namespace specdec
