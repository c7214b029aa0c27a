// The distribution of a row of logits: masses in float64, cut to the likeliest tokens by a search
// for the threshold, bit after bit, so nothing is sorted. A block takes a row.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/order.cuh"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/row_mask.cuh"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;

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

  __device__ bool allows(int32_t id) const { return cuda::allows(allowed, id); }
  /// Order of a token's logit; that of a forbidden token is below all others.
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

/// The largest logit of the allowed tokens, in every thread; -inf where the row has no support.
__device__ inline float best_allowed(const Row& row) {
  float best = device::minus_infinity();
  bool damaged = false;
  for (auto id = static_cast<int32_t>(threadIdx.x); id < row.vocab; id += kThreads) {
    const float logit = row.logits[id];
    damaged = damaged || !(logit < device::infinity());
    best = row.allows(id) && logit > best ? logit : best;
  }
  best = block_largest<kThreads>(best, reinterpret_cast<float*>(row.scratch));
  damaged = __syncthreads_or(damaged ? 1 : 0) != 0;
  return damaged ? device::minus_infinity() : best;
}

/// Masses exp((logit - best) / temperature); for temperature 0 of the best tokens alone. Each
/// thread reads only those that it writes.
__device__ inline void fill_masses(const TargetProbsTask& task, const Row& row, float best) {
  const double scale = inverse_temperature(task.temperature);
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

/// Shared memory: a number for each warp, bits of the allowed tokens.
__global__ void __launch_bounds__(kThreads) target_probs_kernel(TargetProbsTask task) {
  await_earlier_kernels();
  auto* scratch = reinterpret_cast<double*>(shared_memory());
  const auto index = static_cast<int64_t>(blockIdx.x);
  const Row row = {task.logits + index * task.stride, task.probs + index * task.vocab, task.vocab,
                   scratch,
                   allowed_tokens<kThreads>(task.masks, index, task.vocab,
                                            reinterpret_cast<uint32_t*>(scratch + kWarps))};
  const float best = best_allowed(row);
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
  double support = 0.0;
  for (auto id = static_cast<int32_t>(threadIdx.x); id < row.vocab; id += kThreads) {
    double& mass = row.masses[id];
    mass = cut.keeps(row.order(id), id) && mass >= task.min_p ? mass : 0.0;
    sum += mass;
    support += mass > 0.0 ? 1.0 : 0.0;
  }
  sum = block_sum<kThreads>(sum, scratch);
  if (task.support != nullptr) {
    support = block_sum<kThreads>(support, scratch);
    if (threadIdx.x == 0) {
      task.support[index] = best == device::minus_infinity() ? 0 : static_cast<int32_t>(support);
    }
  }
  for (auto id = static_cast<int32_t>(threadIdx.x); id < row.vocab; id += kThreads) {
    row.masses[id] /= sum;
  }
}

}  // namespace

int specdec_cuda_target_probs(const TargetProbsTask* task, void* stream) {
  return launch_masked_rows<kThreads>(target_probs_kernel, *task, task->count,
                                      kWarps * sizeof(double), stream);
}

}  // namespace specdec::cuda
