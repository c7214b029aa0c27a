// The distribution of a row of logits: masses in float64, cut to the likeliest tokens by a search
// for the threshold, bit after bit, so nothing is sorted. A block takes a row.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;

/// An integer that orders as the number does; -0 is 0.
__device__ inline uint32_t order_of(float number) {
  const uint32_t bits = device::bits_of(number + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// The tokens above a threshold, and of those on it the ids below a bound.
struct Cut {
  uint32_t threshold = 0;
  int32_t id_bound = INT32_MAX;

  __device__ bool keeps(uint32_t order, int32_t id) const {
    return order > threshold || (order == threshold && id < id_bound);
  }
};

/// A row, whose masses stand where its probabilities will.
struct Row {
  const float* logits;
  double* masses;
  int32_t vocab;
  double* scratch;          ///< a number for each warp
  const uint32_t* allowed;  ///< a bit for each token; nullptr = all

  __device__ bool allows(int32_t id) const {
    return allowed == nullptr || (allowed[id / 32] >> (id % 32) & 1U) != 0;
  }
  /// That of a forbidden token is below all others.
  __device__ uint32_t order(int32_t id) const { return allows(id) ? order_of(logits[id]) : 0; }

  /// Sum of the masses, or the number, of the tokens that are in both cuts; in every thread.
  __device__ double amount(bool of_masses, const Cut& a, const Cut& b) const {
    double sum = 0.0;
    for (auto id = static_cast<int32_t>(threadIdx.x); id < vocab; id += kThreads) {
      const uint32_t rank = order(id);
      if (a.keeps(rank, id) && b.keeps(rank, id)) {
        sum += of_masses ? masses[id] : 1.0;
      }
    }
    return block_sum<kThreads>(sum, scratch);
  }
};

/// The fewest of a cut's tokens, the likeliest and of equal ones the lowest ids, whose amount
/// reaches `wanted`.
__device__ inline Cut cut_to(const Row& row, const Cut& from, bool of_masses, double wanted) {
  Cut cut;
  for (uint32_t bit = 0x80000000U; bit != 0; bit >>= 1U) {
    const Cut higher = {cut.threshold | bit, INT32_MAX};
    if (row.amount(of_masses, from, higher) >= wanted) {
      cut.threshold = higher.threshold;
    }
  }
  int32_t bound = 0;  // the largest that is not enough
  for (int32_t bit = 1 << 30; bit != 0; bit >>= 1) {
    if ((bound | bit) <= row.vocab &&
        row.amount(of_masses, from, {cut.threshold, bound | bit}) < wanted) {
      bound |= bit;
    }
  }
  cut.id_bound = bound + 1;
  return cut;
}

/// Masses exp((logit - best) / temperature); for temperature 0 of the best tokens alone. Each
/// thread reads only those that it writes.
__device__ inline void fill_masses(const TargetProbsTask& task, const Row& row, float best) {
  constexpr double kLargest = 1.7976931348623157e308;
  const double inverse = 1.0 / task.temperature;
  const double scale = inverse < kLargest ? inverse : kLargest;
  for (auto id = static_cast<int32_t>(threadIdx.x); id < row.vocab; id += kThreads) {
    if (!row.allows(id)) {
      row.masses[id] = 0.0;
      continue;
    }
    const float logit = row.logits[id];
    const double below = static_cast<double>(logit) - static_cast<double>(best);
    row.masses[id] = logit == best ? 1.0 : task.temperature == 0.0 ? 0.0 : exp(below * scale);
  }
}

SPECDEC_DEVICE int32_t mask_words(int32_t vocab) { return (vocab + 31) / 32; }

/// Writes the bits of a row's tokens, base and exceptions, to shared memory; the whole block.
/// nullptr where all are allowed.
__device__ inline const uint32_t* allowed_tokens(const TargetProbsTask& task, int64_t row,
                                                 uint32_t* words) {
  if (task.mask_of_row == nullptr || task.mask_of_row[row] == kCudaAllTokens) {
    return nullptr;
  }
  const int64_t base = task.mask_of_row[row];
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t word = thread; word < mask_words(task.vocab); word += kThreads) {
    words[word] =
        base < 0 || word >= task.mask_words ? 0U : task.mask_bases[base * task.mask_words + word];
  }
  __syncthreads();
  for (int32_t i = task.exception_starts[row] + thread; i < task.exception_starts[row + 1];
       i += kThreads) {
    const int32_t exception = task.exceptions[i];
    const int32_t token = exception < 0 ? ~exception : exception;
    const uint32_t bit = 1U << (token % 32);
    if (token < task.vocab && exception < 0) {
      atomicAnd(&words[token / 32], ~bit);
    } else if (token < task.vocab) {
      atomicOr(&words[token / 32], bit);
    }
  }
  __syncthreads();
  return words;
}

/// Shared memory: a number for each warp, bits of the allowed tokens.
__global__ void __launch_bounds__(kThreads) target_probs_kernel(TargetProbsTask task) {
  auto* scratch = reinterpret_cast<double*>(shared_memory());
  const auto index = static_cast<int64_t>(blockIdx.x);
  const Row row = {task.logits + index * task.stride, task.probs + index * task.vocab, task.vocab,
                   scratch,
                   allowed_tokens(task, index, reinterpret_cast<uint32_t*>(scratch + kWarps))};
  float best = device::minus_infinity();
  for (auto id = static_cast<int32_t>(threadIdx.x); id < row.vocab; id += kThreads) {
    best = row.allows(id) && row.logits[id] > best ? row.logits[id] : best;
  }
  best = block_largest<kThreads>(best, reinterpret_cast<float*>(scratch));
  fill_masses(task, row, best);
  Cut cut;
  const int32_t count = task.temperature == 0.0 ? 1 : task.top_k;
  if (count > 0 && count < row.vocab) {
    cut = cut_to(row, cut, false, count);
  }
  if (task.top_p < 1.0 && task.temperature > 0.0) {
    cut = cut_to(row, cut, true, task.top_p * row.amount(true, cut, {}));
  }
  double sum = 0.0;
  for (auto id = static_cast<int32_t>(threadIdx.x); id < row.vocab; id += kThreads) {
    double& mass = row.masses[id];
    mass = cut.keeps(row.order(id), id) && mass >= task.min_p ? mass : 0.0;
    sum += mass;
  }
  sum = block_sum<kThreads>(sum, scratch);
  for (auto id = static_cast<int32_t>(threadIdx.x); id < row.vocab; id += kThreads) {
    row.masses[id] /= sum;
  }
}

}  // namespace

int specdec_cuda_target_probs(const TargetProbsTask* task, void* stream) {
  if (task->count == 0) {
    return 0;
  }
  if (task->count < 0 || task->vocab <= 0 || task->stride < task->vocab ||
      (task->mask_of_row != nullptr && task->exception_starts == nullptr)) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task->count);
  shape.threads = kThreads;
  shape.shared_bytes = kWarps * sizeof(double);
  if (task->mask_of_row != nullptr) {
    shape.shared_bytes += static_cast<unsigned>(mask_words(task->vocab) * sizeof(uint32_t));
  }
  return launch(target_probs_kernel, shape, stream, *task);
}

}  // namespace specdec::cuda
