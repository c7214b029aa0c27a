// Which drafted tokens of a tree stay, and what comes after them. A block takes a tree.
#include "core/kernels/cuda/draw.cuh"
#include "core/kernels/cuda/kernels.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = kVerifyThreads;
constexpr int kWarps = kThreads / kWarp;

/// A distribution: numbers divided by their sum.
struct Divided {
  const double* numbers;  ///< [vocab], or nullptr = all the mass on the token that is tried
  double sum;

  __device__ double operator()(int32_t token) const { return numbers[token] / sum; }
};

/// The first child of a node behind another, -1 = none; `parents` of `size` nodes.
__device__ inline int32_t child_behind(const int32_t* parents, int32_t size, int32_t node,
                                       int32_t last) {
  int32_t child = last + 1;
  while (child < size && parents[child] != node) {
    ++child;
  }
  return child < size ? child : -1;
}

/// Writes the path of `nodes` nodes to its end.
__device__ inline void end_path(int32_t* path, int32_t nodes, int32_t capacity) {
  for (int32_t i = nodes; i <= capacity; ++i) {
    path[i] = -1;
  }
}

/// A tree as verify_by_rejection of device/verify.h walks it, with p and q at its place. The whole
/// block walks alike.
struct Tree {
  const VerifyTreesTask& task;
  int64_t index;
  int64_t first;    ///< of its nodes
  double* scratch;  ///< a number for each warp, in shared memory
  int32_t nodes;    ///< that stay, the root among them
  Divided p, q;

  __device__ int32_t child_after(int32_t node, int32_t last) const {
    return child_behind(task.parents + first, task.sizes[index], node, last);
  }
  __device__ int32_t token(int32_t node) const { return task.tokens[first + node]; }
  __device__ double target(int32_t child) const { return p(token(child)); }
  __device__ double drafted(int32_t child) const {
    return q.numbers == nullptr ? 1.0 : q(token(child));
  }
  __device__ void enter(int32_t node) {
    if (threadIdx.x == 0) {
      task.path[first + nodes] = node;
    }
    ++nodes;
    const int32_t row = task.drawn_from[first + node];
    p = {task.target + (first + node) * task.vocab, 1.0};
    q = {row < 0 ? nullptr : task.drafted + static_cast<int64_t>(row) * task.vocab, 1.0};
  }
  /// Leaves the residual distributions in the tree's workspace. A thread reads and writes the same
  /// tokens each time.
  __device__ bool reject(int32_t child) {
    __syncthreads();  // all have read what the rejection changes
    const int32_t rejected = token(child);
    double* rest = task.workspace + index * 2 * task.vocab;
    double* others = rest + task.vocab;
    const bool drawn = q.numbers != nullptr;
    double rest_sum = 0.0;
    double others_sum = 0.0;
    for (auto i = static_cast<int32_t>(threadIdx.x); i < task.vocab; i += kThreads) {
      const double mass = p(i);
      const double taken = drawn ? q(i) : 0.0;
      rest[i] = drawn ? device::residual_weight(mass, taken) : i == rejected ? 0.0 : mass;
      rest_sum += rest[i];
      if (drawn) {
        others[i] = i == rejected ? 0.0 : taken;
        others_sum += others[i];
      }
    }
    rest_sum = block_sum<kThreads>(rest_sum, scratch);
    others_sum = block_sum<kThreads>(others_sum, scratch);
    p = {rest, rest_sum};
    q = {drawn ? others : nullptr, others_sum > 0.0 ? others_sum : 1.0};
    return rest_sum > 0.0;
  }
};

/// Shared memory: a number for each warp, sums of blocks of weights.
__global__ void __launch_bounds__(kThreads) trees_kernel(VerifyTreesTask task) {
  await_earlier_kernels();
  auto* scratch = reinterpret_cast<double*>(shared_memory());
  double* sums = scratch + kWarps;
  const auto index = static_cast<int64_t>(blockIdx.x);
  Tree tree = {task, index, index * (task.capacity + 1), scratch, 0, {}, {}};
  VerifyDraws<VerifyRules> draws = {task.keys, task.positions, index, 0};
  device::verify_by_rejection(&tree, &draws);
  sum_blocks<VerifyRules>(tree.p, task.vocab, sums);
  if (threadIdx.x == 0) {
    end_path(task.path + tree.first, tree.nodes, task.capacity);
    task.accepted[index] = tree.nodes - 1;
    task.next[index] = draw(tree.p, task.vocab, sums, draws.uniform());
  }
}

/// A tree whose target's best tokens are known.
struct MatchedTree {
  const MatchTreesTask& task;
  int64_t index;
  int64_t first;  ///< of its nodes
  int32_t nodes;  ///< that stay, the root among them

  __device__ int32_t child_after(int32_t node, int32_t last) const {
    return child_behind(task.parents + first, task.sizes[index], node, last);
  }
  __device__ int32_t token(int32_t node) const { return task.tokens[first + node]; }
  __device__ int32_t choose(int32_t node) const { return task.best[first + node]; }
  __device__ void enter(int32_t node) { task.path[first + nodes++] = node; }
};

/// A thread takes a tree.
__global__ void __launch_bounds__(kThreads) match_trees_kernel(MatchTreesTask task) {
  await_earlier_kernels();
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= task.trees) {
    return;
  }
  MatchedTree tree = {task, index, index * (task.capacity + 1), 0};
  task.next[index] = device::match(&tree);
  end_path(task.path + tree.first, tree.nodes, task.capacity);
  task.accepted[index] = tree.nodes - 1;
}

}  // namespace

int specdec_cuda_verify_trees(const VerifyTreesTask* task, void* stream) {
  if (task->trees == 0) {
    return 0;
  }
  if (task->trees < 0 || task->capacity < 0 || task->vocab <= 0) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task->trees);
  shape.threads = kThreads;
  shape.shared_bytes = static_cast<unsigned>((kWarps + draw_blocks(task->vocab)) * sizeof(double));
  return launch(trees_kernel, shape, stream, *task);
}

int specdec_cuda_match_trees(const MatchTreesTask* task, void* stream) {
  if (task->trees == 0) {
    return 0;
  }
  if (task->trees < 0 || task->capacity < 0) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((task->trees + kThreads - 1) / kThreads);
  shape.threads = kThreads;
  return launch(match_trees_kernel, shape, stream, *task);
}

}  // namespace specdec::cuda
