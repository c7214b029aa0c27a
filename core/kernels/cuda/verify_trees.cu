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

/// One tree's arrays.
struct Tree {
  const VerifyTreesTask& task;
  int64_t index;
  int64_t first;  ///< of its nodes

  __device__ int32_t token(int32_t node) const { return task.tokens[first + node]; }
  __device__ bool is_child(int32_t child, int32_t node) const {
    return task.parents[first + child] == node;
  }
  __device__ double uniform(int32_t choice) const {
    return verify_uniform(task.keys, task.positions, index, choice);
  }
  __device__ Divided target(int32_t node) const {
    return {task.target + (first + node) * task.vocab, 1.0};
  }
  /// What the children of a node were drawn from.
  __device__ Divided drafted(int32_t node) const {
    const int32_t row = task.drawn_from[first + node];
    return {row < 0 ? nullptr : task.drafted + static_cast<int64_t>(row) * task.vocab, 1.0};
  }
};

/// p and q at one node, while its children are tried one after the other.
struct Trial {
  Divided target, drafted;

  __device__ double ratio_to(int32_t token) const {
    return drafted.numbers == nullptr ? 1.0 : drafted(token);
  }
};

/// Leaves the residual distributions in the tree's workspace; the whole block. A thread reads and
/// writes the same tokens each time. False when no mass would be left: a rejection that only
/// rounding made possible.
__device__ inline bool reject(const Tree& tree, int32_t token, double* scratch, Trial& trial) {
  const int32_t vocab = tree.task.vocab;
  double* rest = tree.task.workspace + tree.index * 2 * vocab;
  double* others = rest + vocab;
  const bool drawn = trial.drafted.numbers != nullptr;
  double rest_sum = 0.0;
  double others_sum = 0.0;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < vocab; i += kThreads) {
    const double p = trial.target(i);
    const double q = drawn ? trial.drafted(i) : 0.0;
    rest[i] = drawn ? device::residual_weight(p, q) : i == token ? 0.0 : p;
    rest_sum += rest[i];
    if (drawn) {
      others[i] = i == token ? 0.0 : q;
      others_sum += others[i];
    }
  }
  rest_sum = block_sum<kThreads>(rest_sum, scratch);
  others_sum = block_sum<kThreads>(others_sum, scratch);
  trial.target = {rest, rest_sum};
  trial.drafted = {drawn ? others : nullptr, others_sum > 0.0 ? others_sum : 1.0};
  return rest_sum > 0.0;
}

/// The first of a node's children that is accepted, -1 = none; the whole block.
__device__ inline int32_t try_children(const Tree& tree, int32_t node, double* scratch,
                                       int32_t& choice, Trial& trial) {
  const int32_t size = tree.task.sizes[tree.index];
  for (int32_t child = node + 1; child < size; ++child) {
    if (!tree.is_child(child, node)) {
      continue;
    }
    const int32_t token = tree.token(child);
    if (VerifyRules::accepts(tree.uniform(choice++), trial.target(token), trial.ratio_to(token))) {
      return child;
    }
    __syncthreads();  // all have read what the rejection changes
    if (!reject(tree, token, scratch, trial)) {
      return child;
    }
  }
  return -1;
}

/// Shared memory: a number for each warp, sums of blocks of weights.
__global__ void __launch_bounds__(kThreads) trees_kernel(VerifyTreesTask task) {
  auto* scratch = reinterpret_cast<double*>(shared_memory());
  double* sums = scratch + kWarps;
  const auto index = static_cast<int64_t>(blockIdx.x);
  const Tree tree = {task, index, index * (task.capacity + 1)};
  int32_t* path = task.path + tree.first;
  int32_t accepted = 0;
  int32_t choice = 0;
  Trial trial{};
  for (int32_t node = 0; node >= 0;) {
    if (threadIdx.x == 0) {
      path[accepted] = node;
    }
    trial = {tree.target(node), tree.drafted(node)};
    node = try_children(tree, node, scratch, choice, trial);
    accepted += node >= 0 ? 1 : 0;
  }
  sum_blocks<VerifyRules>(trial.target, task.vocab, sums);
  if (threadIdx.x == 0) {
    for (int32_t i = accepted + 1; i <= task.capacity; ++i) {
      path[i] = -1;
    }
    task.accepted[index] = accepted;
    task.next[index] = draw(trial.target, task.vocab, sums, tree.uniform(choice));
  }
}

/// The child of a node that holds a token, -1 = none.
__device__ inline int32_t child_with(const MatchTreesTask& task, int64_t tree, int32_t node,
                                     int32_t token) {
  const int64_t first = tree * (task.capacity + 1);
  for (int32_t child = node + 1; child < task.sizes[tree]; ++child) {
    if (task.parents[first + child] == node && task.tokens[first + child] == token) {
      return child;
    }
  }
  return -1;
}

/// A thread takes a tree.
__global__ void __launch_bounds__(kThreads) match_trees_kernel(MatchTreesTask task) {
  const int64_t tree = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (tree >= task.trees) {
    return;
  }
  const int64_t first = tree * (task.capacity + 1);
  int32_t accepted = -1;
  int32_t next = 0;
  for (int32_t node = 0; node >= 0; node = child_with(task, tree, node, next)) {
    next = task.best[first + node];
    task.path[first + ++accepted] = node;
  }
  for (int32_t i = accepted + 1; i <= task.capacity; ++i) {
    task.path[first + i] = -1;
  }
  task.accepted[tree] = accepted;
  task.next[tree] = next;
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
