#pragma once
// Products of some rows with some outputs of a matrix, by fused multiply-adds in float32. The
// inputs are dealt out by eight to a block's lanes, as their number alone says; the lanes' sums,
// and then the warps', are added in a fixed order. So a row's bits depend on no other row.
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/weight_formats.cuh"

namespace specdec::cuda {

constexpr int kProductThreads = 128;
constexpr int kProductWarps = kProductThreads / kWarp;
constexpr int kProductOutputs = 4;  // of a block

/// A matrix and rows of inputs, and how their arrays may be read.
template <class Weights>
struct RowProduct {
  Weights format;
  const void* weight;  ///< [outputs, in]
  const float* input;  ///< [any, in]
  int32_t in, outputs;
  bool weights_by_eight, inputs_by_eight;
};

/// Whether inputs may be read by eight.
inline bool reads_inputs_by_eight(const float* input, int32_t in) {
  return reinterpret_cast<uintptr_t>(input) % 16 == 0 && in % 4 == 0;
}

/// Weights k .. k + 7 of an output; zeros behind the last input.
template <class Weights>
__device__ inline void read_weights(const RowProduct<Weights>& product, int32_t output, int k,
                                    float* weights) {
  const Bytes row = static_cast<Bytes>(product.weight) + output * row_bytes<Weights>(product.in);
  if (product.weights_by_eight && k + 8 <= product.in) {
    product.format.eight(row, k, weights);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    weights[i] = k + i < product.in ? product.format.at(row, k + i) : 0.0F;
  }
}

template <class Weights>
__device__ inline void read_inputs(const RowProduct<Weights>& product, int32_t row, int k,
                                   float* inputs) {
  const float* from = product.input + static_cast<int64_t>(row) * product.in + k;
  if (product.inputs_by_eight && k + 8 <= product.in) {
    load_eight(from, inputs);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    inputs[i] = k + i < product.in ? from[i] : 0.0F;
  }
}

/// Adds eight inputs to the sums of a tile, one after the other. rows(r): the input's row, or -1
/// from the first r on that there is none.
template <int kRows, class Weights, class Rows>
__device__ inline void add_eight(const RowProduct<Weights>& product, int32_t first_output,
                                 const Rows& rows, int k, float (&sums)[kRows * kProductOutputs]) {
  float weights[kProductOutputs][8];
#pragma unroll
  for (int o = 0; o < kProductOutputs; ++o) {
    const int32_t output = first_output + o < product.outputs ? first_output + o : first_output;
    read_weights(product, output, k, weights[o]);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int32_t row = rows(r);
    if (row < 0) {
      break;
    }
    float inputs[8];
    read_inputs(product, row, k, inputs);
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
template <int kRows, class Weights, class Rows>
__device__ inline float row_product(const RowProduct<Weights>& product, int32_t first_output,
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
