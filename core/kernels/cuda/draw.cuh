#pragma once
// Drawing a token by weights, as Randomness does on the host: blocks are skipped by their sums.
// Weights are functions of the token; Rules says how the threads of a block meet (VerifyRules).
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/philox.h"
#include "core/kernels/device/verify.h"

namespace specdec::cuda {

constexpr int kVerifyThreads = 256;
constexpr int32_t kDrawBlock = 256;  // weights whose sum a draw can skip

SPECDEC_DEVICE int32_t draw_blocks(int32_t vocab) { return (vocab + kDrawBlock - 1) / kDrawBlock; }

/// What the verification kernels do where tests plant faults.
struct VerifyRules {
  static constexpr int32_t kUnchecked = 0;  ///< first tokens that stay without a check
  __device__ static bool accepts(double uniform, double target, double drafted) {
    return device::accepts(uniform, target, drafted);
  }
  __device__ static void meet() { __syncthreads(); }
  /// Whether `holds` is true in any thread of the block; in every thread.
  __device__ static bool any(bool holds) { return __syncthreads_or(holds ? 1 : 0) != 0; }
};

/// Random number `choice` of the verification of row `index`.
__device__ inline double verify_uniform(const uint32_t* keys, const int64_t* positions,
                                        int64_t index, int32_t choice) {
  constexpr uint32_t kVerifyPurpose = 2;
  return device::uniform(keys[2 * index], keys[2 * index + 1],
                         static_cast<uint64_t>(positions[index]), kVerifyPurpose,
                         static_cast<uint32_t>(choice));
}

/// The random numbers of one draft's verification, in order.
template <class Rules>
struct VerifyDraws {
  const uint32_t* keys;
  const int64_t* positions;
  int64_t index;
  int32_t choice;

  __device__ double uniform() { return verify_uniform(keys, positions, index, choice++); }
  __device__ bool accepts(double target, double drafted) {
    const bool accepted = Rules::accepts(uniform(), target, drafted);
    return choice <= Rules::kUnchecked || accepted;
  }
};

/// Weights from a token on.
template <class Weights>
struct WeightsFrom {
  const Weights& weights;
  int32_t first;

  __device__ double operator[](int32_t index) const { return weights(first + index); }
};

/// Sums of the blocks of weights, to shared memory; whether any is above zero, in every thread.
template <class Rules, class Weights>
__device__ inline bool sum_blocks(const Weights& weights, int32_t vocab, double* sums) {
  bool positive = false;
  for (auto block = static_cast<int32_t>(threadIdx.x); block < draw_blocks(vocab);
       block += kVerifyThreads) {
    const int32_t first = block * kDrawBlock;
    const int32_t end = first + kDrawBlock < vocab ? first + kDrawBlock : vocab;
    double sum = 0.0;
    for (int32_t token = first; token < end; ++token) {
      sum += weights(token);
    }
    sums[block] = sum;
    positive = positive || sum > 0.0;
  }
  return Rules::any(positive);
}

__device__ inline double total_of(const double* sums, int32_t vocab) {
  double total = 0.0;
  for (int32_t block = 0; block < draw_blocks(vocab); ++block) {
    total += sums[block];
  }
  return total;
}

/// The token that a uniform number draws; of one thread.
template <class Weights>
__device__ inline int32_t draw(const Weights& weights, int32_t vocab, const double* sums,
                               double uniform) {
  double passed = 0.0;
  double ignored = 0.0;
  const double target = uniform * total_of(sums, vocab);
  const int32_t first = device::pick(sums, draw_blocks(vocab), target, passed) * kDrawBlock;
  const int32_t left = vocab - first;
  return first + device::pick(WeightsFrom<Weights>{weights, first},
                              left < kDrawBlock ? left : kDrawBlock, target - passed, ignored);
}

}  // namespace specdec::cuda
