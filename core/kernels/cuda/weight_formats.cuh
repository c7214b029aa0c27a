#pragma once
// Reads weights of a row, whatever they are stored as. Each format has kBlock, the inputs of a
// block; kBytes, its size; at(row, k), weight k; and eight(row, k, out), weights k .. k + 7 for a k
// that is a multiple of 8, of a row that begins at a multiple of 16 bytes.
#include <cuda_launch.h>

#include "core/kernels/cuda/codebook_weights.cuh"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/device/numbers.h"
#include "core/kernels/device/stored_block.h"

namespace specdec::cuda {

using Bytes = const unsigned char*;

/// What one load instruction reads.
struct alignas(16) Words {
  uint32_t word[4];
};

__device__ inline Words load_words(const void* from) { return *static_cast<const Words*>(from); }

/// Numbers k .. k + 7 of an array that begins at a multiple of 16 bytes.
__device__ inline void load_eight(const float* from, float* out) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Words words = load_words(from + half * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[half * 4 + i] = device::float_of(words.word[i]);
    }
  }
}

struct Float32Weights {
  static constexpr int kBlock = 1;
  static constexpr int kBytes = 4;
  __device__ static float at(Bytes row, int k) { return reinterpret_cast<const float*>(row)[k]; }
  __device__ static void eight(Bytes row, int k, float* out) {
    load_eight(reinterpret_cast<const float*>(row) + k, out);
  }
};

/// bfloat16 or float16.
template <bool kBrain>
struct SixteenBitWeights {
  static constexpr int kBlock = 1;
  static constexpr int kBytes = 2;
  __device__ static float widened(uint32_t bits) {
    return kBrain ? device::float_of(bits << 16U) : device::widen_half(bits);
  }
  __device__ static float at(Bytes row, int k) {
    return widened(reinterpret_cast<const uint16_t*>(row)[k]);
  }
  __device__ static void eight(Bytes row, int k, float* out) {
    const Words words = load_words(row + static_cast<int64_t>(k) * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = widened(words.word[i] & 0xFFFFU);
      out[2 * i + 1] = widened(words.word[i] >> 16U);
    }
  }
};

/// Blocks, of which kWeight reads one weight.
template <int kBlockInputs, int kBlockBytes, float (*kWeight)(Bytes, int)>
struct BlockWeights {
  static constexpr int kBlock = kBlockInputs;
  static constexpr int kBytes = kBlockBytes;
  __device__ static float at(Bytes row, int k) {
    return kWeight(row + static_cast<int64_t>(k / kBlock) * kBytes, k % kBlock);
  }
  __device__ static void eight(Bytes row, int k, float* out) {
    const Bytes block = row + static_cast<int64_t>(k / kBlock) * kBytes;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      out[i] = kWeight(block, k % kBlock + i);
    }
  }
};

using Q80Weights = BlockWeights<32, 34, device::q8_0_weight<Bytes>>;
using Q40Weights = BlockWeights<32, 18, device::q4_0_weight<Bytes>>;
using Q41Weights = BlockWeights<32, 20, device::q4_1_weight<Bytes>>;
using Q50Weights = BlockWeights<32, 22, device::q5_0_weight<Bytes>>;
using Q51Weights = BlockWeights<32, 24, device::q5_1_weight<Bytes>>;
using Q4KWeights = BlockWeights<256, 144, device::q4_k_weight<Bytes>>;
using Q5KWeights = BlockWeights<256, 176, device::q5_k_weight<Bytes>>;
using Q6KWeights = BlockWeights<256, 210, device::q6_k_weight<Bytes>>;
using Fp8x128Weights = BlockWeights<128, 132, device::fp8_weight<Bytes>>;
using Fp8x32Weights = BlockWeights<32, 36, device::fp8_weight<Bytes>>;
using Int4x128Weights = BlockWeights<128, 69, device::int4_128_weight<Bytes>>;
using Int4x32Weights = BlockWeights<32, 19, device::int4_32_weight<Bytes>>;

/// Bytes of a row of `in` weights.
template <class Weights>
SPECDEC_DEVICE int64_t row_bytes(int32_t in) {
  return static_cast<int64_t>(in) / Weights::kBlock * Weights::kBytes;
}

/// Whether a row's weights may be read by eight(), which for blocks needs no alignment.
template <class Weights>
bool reads_eight(const void* weight, int32_t in) {
  return Weights::kBlock > 1 ||
         (reinterpret_cast<uintptr_t>(weight) % 16 == 0 && row_bytes<Weights>(in) % 16 == 0);
}

/// Calls use(weights) with the reader of a format; kInvalidValue for one that does not exist.
template <class Use>
int with_format(CudaWeights format, const Use& use) {
  switch (format) {
    case CudaWeights::kFloat32:
      return use(Float32Weights{});
    case CudaWeights::kBFloat16:
      return use(SixteenBitWeights<true>{});
    case CudaWeights::kFloat16:
      return use(SixteenBitWeights<false>{});
    case CudaWeights::kQ80:
      return use(Q80Weights{});
    case CudaWeights::kQ40:
      return use(Q40Weights{});
    case CudaWeights::kQ41:
      return use(Q41Weights{});
    case CudaWeights::kQ50:
      return use(Q50Weights{});
    case CudaWeights::kQ51:
      return use(Q51Weights{});
    case CudaWeights::kQ4K:
      return use(Q4KWeights{});
    case CudaWeights::kQ5K:
      return use(Q5KWeights{});
    case CudaWeights::kQ6K:
      return use(Q6KWeights{});
    case CudaWeights::kFp8x128:
      return use(Fp8x128Weights{});
    case CudaWeights::kFp8x32:
      return use(Fp8x32Weights{});
    case CudaWeights::kInt4x128:
      return use(Int4x128Weights{});
    case CudaWeights::kInt4x32:
      return use(Int4x32Weights{});
    default:
      return with_codebook(format, use);
  }
}

}  // namespace specdec::cuda
