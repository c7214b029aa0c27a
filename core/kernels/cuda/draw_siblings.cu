// The children of a level's nodes in a drafted tree: drawn without replacement, or best tokens. A
// block takes a row, the distribution after a node.
#include "core/kernels/cuda/best.cuh"
#include "core/kernels/cuda/draw.cuh"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/row_mask.cuh"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {
namespace {

constexpr int kDrawThreads = kVerifyThreads;
constexpr int kBestThreads = 512;
constexpr int kBestWarps = kBestThreads / kWarp;

/// Whether the tree has the node that a row follows.
__device__ inline bool has_parent(const SiblingRows& siblings, int32_t row) {
  return siblings.tokens[siblings.parents[row]] >= 0;
}

/// Node `child` gets a token, -1 = none.
__device__ inline void set_token(const SiblingRows& siblings, int32_t child, int32_t token) {
  siblings.tokens[child] = token;
  if (siblings.fed != nullptr && siblings.fed_places[child] >= 0) {
    siblings.fed[siblings.fed_places[child]] = token < 0 ? 0 : token;
  }
}

/// Node `child` gets the token of a column.
__device__ inline void name(const SiblingRows& siblings, int32_t child, int32_t column) {
  set_token(siblings, child, siblings.names == nullptr ? column : siblings.names[column]);
}

/// The nodes from `first` to `end` are not there.
__device__ inline void leave_out(const SiblingRows& siblings, int32_t first, int32_t end) {
  for (int32_t child = first; child < end; ++child) {
    set_token(siblings, child, -1);
  }
}

/// A distribution without the tokens that were drawn from it.
struct Undrawn {
  const double* probs;
  const int32_t* drawn;
  int32_t count;

  __device__ double operator()(int32_t token) const {
    for (int32_t i = 0; i < count; ++i) {
      if (drawn[i] == token) {
        return 0.0;
      }
    }
    return probs[token];
  }
};

/// Children that are drawn of a row.
__device__ inline int32_t draws_of(const DrawSiblingsTask& task, int32_t row) {
  const int32_t wanted = task.siblings.first_children[row + 1] - task.siblings.first_children[row];
  const int32_t most = task.support[row] < wanted ? task.support[row] : wanted;
  return has_parent(task.siblings, row) ? most : 0;
}

/// Random numbers that went to the nodes before a row's children.
__device__ inline int32_t draws_before(const DrawSiblingsTask& task, int32_t row) {
  int32_t draws = 0;
  for (int32_t node = 1; node < task.siblings.first_children[0]; ++node) {
    draws += task.siblings.tokens[node] >= 0 ? 1 : 0;
  }
  for (int32_t before = 0; before < row; ++before) {
    draws += draws_of(task, before);
  }
  return draws;
}

/// Shared memory: sums of blocks of weights, the drawn columns.
__global__ void __launch_bounds__(kDrawThreads) draw_siblings_kernel(DrawSiblingsTask task) {
  await_earlier_kernels();
  auto* sums = reinterpret_cast<double*>(shared_memory());
  auto* drawn = reinterpret_cast<int32_t*>(sums + draw_blocks(task.vocab));
  const auto row = static_cast<int32_t>(blockIdx.x);
  Undrawn weights = {task.probs + static_cast<int64_t>(row) * task.vocab, drawn, 0};
  sum_blocks<VerifyRules>(weights, task.vocab, sums);
  if (threadIdx.x != 0) {
    return;
  }
  const int32_t first = task.siblings.first_children[row];
  const int32_t end = task.siblings.first_children[row + 1];
  const int32_t count = draws_of(task, row);
  const int32_t choice = draws_before(task, row);
  while (weights.count < count) {
    const double uniform =
        device::uniform(task.key[0], task.key[1], static_cast<uint64_t>(*task.position),
                        task.purpose, static_cast<uint32_t>(choice + weights.count));
    const int32_t column = draw(weights, task.vocab, sums, uniform);
    name(task.siblings, first + weights.count, column);
    drawn[weights.count++] = column;
    const int32_t block = column / kDrawBlock * kDrawBlock;
    double sum = 0.0;
    for (int32_t token = block; token < task.vocab && token < block + kDrawBlock; ++token) {
      sum += weights(token);
    }
    sums[column / kDrawBlock] = sum;
  }
  leave_out(task.siblings, first + count, end);
}

/// A row of logits, in the order of rank.
struct Ranked {
  const BestSiblingsTask& task;
  const float* logits;
  const double* probs;
  Best* scratch;            ///< one for each warp, and one more
  const uint32_t* allowed;  ///< a bit for each token; nullptr = all

  /// The best allowed token after `last`, in every thread.
  __device__ Best after(Best last) const {
    Best best = no_best();
    for (auto id = static_cast<int32_t>(threadIdx.x); id < task.vocab; id += kBestThreads) {
      const Best one = best_of_one(logits[id], id);
      if (allows(allowed, id) && is_better(last, one)) {
        best = best_of_both(best, one);
      }
    }
    best = best_of_block<kBestThreads>(best, scratch);
    if (threadIdx.x == 0) {
      scratch[kBestWarps] = best;
    }
    __syncthreads();
    return scratch[kBestWarps];
  }

  __device__ bool is_damaged() const {
    bool damaged = false;
    for (auto id = static_cast<int32_t>(threadIdx.x); id < task.vocab; id += kBestThreads) {
      damaged = damaged || !(logits[id] < device::infinity());
    }
    return __syncthreads_or(damaged ? 1 : 0) != 0;
  }

  /// Whether a token has mass beside the best one.
  __device__ bool has_mass(Best token, Best best) const {
    if (token.number == device::minus_infinity() || probs != nullptr) {
      return token.number != device::minus_infinity() && probs[token.id] > 0.0;
    }
    const double below = static_cast<double>(token.number) - static_cast<double>(best.number);
    return exp(below * inverse_temperature(task.temperature)) > 0.0;
  }
};

/// Shared memory: a Best for each warp, and one more, bits of the allowed tokens. The whole block
/// walks alike.
__global__ void __launch_bounds__(kBestThreads) best_siblings_kernel(BestSiblingsTask task) {
  await_earlier_kernels();
  auto* scratch = reinterpret_cast<Best*>(shared_memory());
  const auto row = static_cast<int32_t>(blockIdx.x);
  const Ranked ranked = {
      task, task.logits + static_cast<int64_t>(row) * task.stride,
      task.probs == nullptr ? nullptr : task.probs + static_cast<int64_t>(row) * task.vocab,
      scratch,
      allowed_tokens<kBestThreads>(task.masks, row, task.vocab,
                                   reinterpret_cast<uint32_t*>(scratch + kBestWarps + 1))};
  const int32_t end = task.siblings.first_children[row + 1];
  int32_t child = task.siblings.first_children[row];
  const bool damaged = ranked.is_damaged();
  const Best best = damaged ? no_best() : ranked.after({device::infinity(), 0, 0.0F});
  if (threadIdx.x == 0) {
    task.valid[row] = best.number == device::minus_infinity() ? 0 : 1;
  }
  Best token = best;
  for (int32_t rank = 0; child < end && has_parent(task.siblings, row); ++rank) {
    if (!ranked.has_mass(token, best)) {
      break;
    }
    if (task.ranks[child] == rank) {
      if (threadIdx.x == 0) {
        name(task.siblings, child, token.id);
      }
      ++child;
    }
    token = child < end ? ranked.after(token) : token;
  }
  if (threadIdx.x == 0) {
    leave_out(task.siblings, child, end);
  }
}

bool is_whole(const SiblingRows& siblings, int32_t vocab) {
  return siblings.rows >= 0 && vocab > 0 && siblings.parents != nullptr &&
         siblings.first_children != nullptr && siblings.tokens != nullptr &&
         (siblings.fed == nullptr || siblings.fed_places != nullptr);
}

}  // namespace

int specdec_cuda_draw_siblings(const DrawSiblingsTask* task, void* stream) {
  if (task->siblings.rows == 0) {
    return 0;
  }
  if (!is_whole(task->siblings, task->vocab) || task->support == nullptr || task->most <= 0) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task->siblings.rows);
  shape.threads = kDrawThreads;
  shape.shared_bytes = static_cast<unsigned>(draw_blocks(task->vocab) * sizeof(double) +
                                             static_cast<size_t>(task->most) * sizeof(int32_t));
  return launch(draw_siblings_kernel, shape, stream, *task);
}

int specdec_cuda_best_siblings(const BestSiblingsTask* task, void* stream) {
  if (task->siblings.rows == 0) {
    return 0;
  }
  if (!is_whole(task->siblings, task->vocab) || task->valid == nullptr ||
      task->temperature <= 0.0) {
    return kInvalidValue;
  }
  return launch_masked_rows<kBestThreads>(best_siblings_kernel, *task, task->siblings.rows,
                                          (kBestWarps + 1) * sizeof(Best), stream);
}

}  // namespace specdec::cuda
