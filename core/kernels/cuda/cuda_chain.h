#pragma once
#include <c10/core/Device.h>

#include <memory>

#include "core/device_sampler.h"

namespace specdec {

/// Draws a chain by the CUDA kernels (sampling_kernels.h, argmax), in order on the device's default
/// stream. Copies 16 bytes to the device where tokens are drawn at random; reads 8 bytes a token
/// back, 12 of best tokens.
std::unique_ptr<ChainDrawing> cuda_chain(const ChainRequest& chain, int64_t vocab,
                                         at::Device device);

}  // namespace specdec
