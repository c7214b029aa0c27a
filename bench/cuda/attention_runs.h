#pragma once
#include <functional>

#include "bench/cuda/device.h"
#include "bench/cuda/shapes.h"
#include "core/kernels/cuda/kernels.h"

namespace specdec::cuda {

/// New nodes over a context of one row.
struct AttentionSize {
  int32_t heads, kv_heads, head_dim;
  int32_t context, nodes, window;  ///< window 0: all
  bool tree;                       ///< each node has two children; else a chain
  KvFormat format;                 ///< of the cache
};

/// Copies of a cache on the device, full of random numbers.
struct PreparedAttention {
  size_t cache_bytes;  ///< that a call has to read
  size_t copy_bytes;   ///< of a copy
  DeviceArray out;     ///< [nodes, heads, head_dim]
  std::function<void(int copy, void* stream)> run;
};

size_t cache_bytes_of(const AttentionSize& size);
PreparedAttention prepare_attention(const AttentionSize& size, int copies);

/// The bytes of a group of equal keys of two heads, which specdec_cuda_round_keys has written over
/// NaN throughout: finite float32 numbers. `format`: one with groups of keys.
DeviceArray round_equal_keys(KvFormat format);

}  // namespace specdec::cuda
