#pragma once
#include <c10/core/Device.h>

#include <memory>

#include "core/device_sampler.h"
#include "core/result_memory.h"

namespace specdec {

/// Memory of the chains that are drawn over a vocabulary on a device. It is kept between chains, so
/// that a graph may hold its addresses; two chains' distributions may be held at a time.
struct ChainMemory {
  ChainMemory(int64_t vocab, at::Device device);

  ResultMemory results;    ///< int32
  ResultMemory probs;      ///< [tokens, vocab] float64
  ResultMemory workspace;  ///< of argmax
};

/// Draws a chain by the CUDA kernels (sampling_kernels.h, argmax), in order on the stream that
/// `stream` says then. Copies 16 bytes to the device where tokens are drawn at random; reads 8
/// bytes a token back, 12 of best tokens.
std::unique_ptr<ChainDrawing> cuda_chain(const ChainRequest& chain, int64_t vocab,
                                         at::Device device, ChainMemory& memory,
                                         std::shared_ptr<void* const> stream);

}  // namespace specdec
