#pragma once
// Products of some rows with some outputs of a matrix in float32, by fused multiply-adds in
// float32. The inputs are dealt out by eight to a block's lanes, as their number alone says; the
// lanes' sums, and then the warps', are added in a fixed order. So a row's bits depend on no other
// row.
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/numbers.h"

namespace specdec::cuda {

constexpr int kProductThreads = 128;
constexpr int kProductWarps = kProductThreads / kWarp;
constexpr int kProductOutputs = 4;  // of a block

/// What one load instruction reads.
struct alignas(16) Words {
  uint32_t word[4];
};

/// A matrix and rows of inputs, and whether their rows begin at multiples of 16 bytes.
struct RowProduct {
  const float* weight;  ///< [outputs, in]
  const float* input;   ///< [any, in]
  int32_t in, outputs;
  bool weights_by_eight, inputs_by_eight;
};

/// Whether rows of an array may be read by eight.
inline bool reads_by_eight(const float* rows, int32_t in) {
  return reinterpret_cast<uintptr_t>(rows) % 16 == 0 && in % 4 == 0;
}

/// Numbers k .. k + 7 of a row of `in`; zeros behind the last one.
__device__ inline void read_eight(const float* row, int k, int32_t in, bool by_eight, float* out) {
  if (by_eight && k + 8 <= in) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Words words = *reinterpret_cast<const Words*>(row + k + half * 4);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out[half * 4 + i] = device::float_of(words.word[i]);
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    out[i] = k + i < in ? row[k + i] : 0.0F;
  }
}

/// Adds eight inputs to the sums of a tile, one after the other. rows(r): the input's row, or -1
/// from the first r on that there is none.
template <int kRows, class Rows>
__device__ inline void add_eight(const RowProduct& product, int32_t first_output, const Rows& rows,
                                 int k, float (&sums)[kRows * kProductOutputs]) {
  float weights[kProductOutputs][8];
#pragma unroll
  for (int o = 0; o < kProductOutputs; ++o) {
    const int32_t output = first_output + o < product.outputs ? first_output + o : first_output;
    read_eight(product.weight + static_cast<int64_t>(output) * product.in, k, product.in,
               product.weights_by_eight, weights[o]);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int32_t row = rows(r);
    if (row < 0) {
      break;
    }
    float inputs[8];
    read_eight(product.input + static_cast<int64_t>(row) * product.in, k, product.in,
               product.inputs_by_eight, inputs);
#pragma unroll
    for (int o = 0; o < kProductOutputs; ++o) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& sum = sums[r * kProductOutputs + o];
        sum = device::fused(weights[o][i], inputs[i], sum);
      }
    }
  }
}

template <int kRows>
constexpr unsigned kProductSharedBytes = kProductWarps* kRows* kProductOutputs * sizeof(float);

/// The whole block; the result is in thread t < kRows * kProductOutputs: that of row t /
/// kProductOutputs and output first_output + t % kProductOutputs. `scratch`: kProductSharedBytes.
template <int kRows, class Rows>
__device__ inline float row_product(const RowProduct& product, int32_t first_output,
                                    const Rows& rows, float* scratch) {
  constexpr int kSums = kRows * kProductOutputs;
  const int thread = static_cast<int>(threadIdx.x);
  float sums[kSums] = {};
  for (int k = thread * 8; k < product.in; k += kProductThreads * 8) {
    add_eight<kRows>(product, first_output, rows, k, sums);
  }
  constexpr int kLanesEach = kWarp / kSums;
  const float total = warp_sums(sums);
  if (thread % kLanesEach == 0) {
    scratch[thread / kWarp * kSums + thread % kWarp / kLanesEach] = total;
  }
  __syncthreads();
  if (thread >= kSums) {
    return 0.0F;
  }
  float sum = scratch[thread];
  for (int warp = 1; warp < kProductWarps; ++warp) {
    sum += scratch[warp * kSums + thread];
  }
  return sum;
}

}  // namespace specdec::cuda
