#pragma once
// Tokens of a row of logits that a grammar allows.
#include <cuda_launch.h>

#include "core/kernels/cuda/kernels.h"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {

SPECDEC_DEVICE int32_t mask_words(int32_t vocab) { return (vocab + 31) / 32; }

/// Bytes of shared memory that allowed_tokens writes.
inline unsigned mask_bytes(const RowMasks& masks, int32_t vocab) {
  return masks.of_row == nullptr ? 0U : static_cast<unsigned>(mask_words(vocab) * sizeof(uint32_t));
}

inline bool masks_are_whole(const RowMasks& masks) {
  return masks.of_row == nullptr || masks.exception_starts != nullptr;
}

/// Writes the bits of a row's tokens, base and exceptions, to shared memory; the whole block.
/// nullptr where all are allowed.
template <int kThreads>
__device__ inline const uint32_t* allowed_tokens(const RowMasks& masks, int64_t row, int32_t vocab,
                                                 uint32_t* words) {
  if (masks.of_row == nullptr || masks.of_row[row] == kCudaAllTokens) {
    return nullptr;
  }
  const int64_t base = masks.of_row[row];
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t word = thread; word < mask_words(vocab); word += kThreads) {
    words[word] = base < 0 || word >= masks.words ? 0U : masks.bases[base * masks.words + word];
  }
  __syncthreads();
  for (int32_t i = masks.exception_starts[row] + thread; i < masks.exception_starts[row + 1];
       i += kThreads) {
    const int32_t exception = masks.exceptions[i];
    const int32_t token = exception < 0 ? ~exception : exception;
    const uint32_t bit = 1U << (token % 32);
    if (token < vocab && exception < 0) {
      atomicAnd(&words[token / 32], ~bit);
    } else if (token < vocab) {
      atomicOr(&words[token / 32], bit);
    }
  }
  __syncthreads();
  return words;
}

/// Whether a token is in the bits that allowed_tokens gives; nullptr = all are.
__device__ inline bool allows(const uint32_t* allowed, int32_t id) {
  return allowed == nullptr || (allowed[id / 32] >> (id % 32) & 1U) != 0;
}

/// What a difference of logits is multiplied by: 1 / temperature, finite.
__device__ inline double inverse_temperature(double temperature) {
  constexpr double kLargest = 1.7976931348623157e308;
  const double inverse = 1.0 / temperature;
  return inverse < kLargest ? inverse : kLargest;
}

/// Whether each of a task's rows has its own logits.
template <class Task>
bool rows_are_apart(const Task& task) {
  return task.stride >= task.vocab;
}

/// Launches a kernel of blocks that each take one of `rows` rows of logits, with `scratch` bytes
/// and the bits of the allowed tokens in shared memory. With a stride of 0 all blocks read one row,
/// which a kernel that takes none of the kind refuses before (rows_are_apart).
template <int kThreads, class Task>
int launch_masked_rows(void (*kernel)(Task), const Task& task, int32_t rows, size_t scratch,
                       void* stream) {
  if (rows == 0) {
    return 0;
  }
  const bool is_readable = task.stride == 0 || rows_are_apart(task);
  if (rows < 0 || task.vocab <= 0 || !is_readable || !masks_are_whole(task.masks)) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(rows);
  shape.threads = kThreads;
  shape.shared_bytes = static_cast<unsigned>(scratch) + mask_bytes(task.masks, task.vocab);
  return launch(kernel, shape, stream, task);
}

}  // namespace specdec::cuda
