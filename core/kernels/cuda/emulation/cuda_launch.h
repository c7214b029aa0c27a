#pragma once
// What kernels are written with, compiled as C++ for the emulation; see emulation.h. The names and
// their meaning are CUDA's.
#include <cstring>
#include <type_traits>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/emulation/stream_capture.h"
#include "core/kernels/cuda/emulation/stream_copies.h"
#include "core/kernels/cuda/launch_shape.h"

#if defined(__SANITIZE_ADDRESS__) && !SPECDEC_FIBERS_ARE_SANITIZED
#error "ASan has to know of the fibers that run these kernels"
#endif

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names.
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

using specdec::cuda::emulation::blockIdx;
using specdec::cuda::emulation::gridDim;
using specdec::cuda::emulation::threadIdx;

inline void __syncthreads() { specdec::cuda::emulation::sync_block(); }
inline int __syncthreads_or(int predicate) {
  return specdec::cuda::emulation::sync_block_or(predicate != 0) ? 1 : 0;
}
inline void __syncwarp() { specdec::cuda::emulation::exchange("__syncwarp", 0, 0); }

namespace specdec::cuda::emulation {

template <class T>
T exchange_number(const char* name, T number, int source) {
  static_assert(std::is_trivially_copyable<T>::value && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof(T));
  bits = exchange(name, bits, source);
  std::memcpy(&number, &bits, sizeof(T));
  return number;
}

}  // namespace specdec::cuda::emulation

template <class T>
T __shfl_xor_sync(unsigned mask, T number, int lanes) {
  specdec::cuda::emulation::check_mask(mask);
  return specdec::cuda::emulation::exchange_number("__shfl_xor_sync", number,
                                                   static_cast<int>(threadIdx.x % 32U) ^ lanes);
}

template <class T>
T __shfl_sync(unsigned mask, T number, int source) {
  specdec::cuda::emulation::check_mask(mask);
  return specdec::cuda::emulation::exchange_number("__shfl_sync", number, source & 31);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  specdec::cuda::emulation::check_mask(mask);
  return specdec::cuda::emulation::ballot(predicate != 0);
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned places) {
  const uint64_t bytes = uint64_t{high} << 32U | low;
  unsigned chosen = 0;
  for (unsigned i = 0; i < 4; ++i) {
    chosen |= static_cast<unsigned>(bytes >> (8 * (places >> 4 * i & 7U)) & 255U) << 8 * i;
  }
  return chosen;
}

/// One thread runs at a time.
inline unsigned atomicOr(unsigned* word, unsigned bits) {
  const unsigned before = *word;
  *word |= bits;
  return before;
}
inline unsigned atomicAnd(unsigned* word, unsigned bits) {
  const unsigned before = *word;
  *word &= bits;
  return before;
}
inline unsigned atomicMin(unsigned* number, unsigned other) {
  const unsigned before = *number;
  *number = other < before ? other : before;
  return before;
}
// NOLINTEND(bugprone-reserved-identifier)

namespace specdec::cuda {

inline unsigned char* shared_memory() { return emulation::shared_memory(); }

/// Whether blocks can be launched in clusters.
inline bool has_clusters() { return emulation::has_clusters(); }
inline unsigned cluster_blocks() { return emulation::cluster_blocks(); }
inline void sync_cluster() { emulation::sync_cluster(); }
inline float read_shared_of(const float* own, unsigned block) {
  float number = 0.0F;
  std::memcpy(&number, emulation::shared_of(reinterpret_cast<const unsigned char*>(own), block),
              sizeof(number));
  return number;
}

/// Notes that the thread waits for earlier kernels; that all threads do is checked.
inline void await_earlier_kernels() { emulation::await_earlier_kernels(); }

/// c += a * b: tiles that the lanes of a warp hold as mma.m16n8k16 of bfloat16 says.
inline void multiply_tiles(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulation::multiply_tiles(c, a, b);
}

/// Runs kernel(task) in the emulation, to its end, or notes it where `stream` is captured; returns
/// 0, or the error of a launch beside the captured stream.
template <class Task>
int launch(void (*kernel)(Task), const LaunchShape& shape, void* stream, const Task& task) {
  return emulation::launch_grid(stream, [kernel, shape, task] {
    emulation::begin_launch(&task, sizeof(task));
    emulation::run_grid(shape, [kernel, &task] {  // which a graph keeps
      kernel(task);
      emulation::check_awaited();
    });
  });
}

}  // namespace specdec::cuda
