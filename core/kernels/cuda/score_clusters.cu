// A head of which the tokens of a row's best clusters are scored. Three kernels: a warp finds the
// rank of a cluster, by counting those before it; a warp scores a token of a chosen cluster, and
// the blocks of a row find its smallest score; and each token gets its score, or what those without
// one get. The number of rows changes none of this, so a row's bits depend on its own numbers
// alone.
#include "core/kernels/cuda/cluster_kernels.h"
#include "core/kernels/cuda/fragment_weight.cuh"
#include "core/kernels/cuda/order.cuh"
#include "core/kernels/cuda/reduce.cuh"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kTokensEach = 4;  // of a thread that writes logits

/// What the kernels leave for one another.
struct ClusterWorkspace {
  float* scores;       ///< [rows, chosen, each] of tokens
  int32_t* ranks;      ///< [rows, clusters] 0 = the best cluster
  int32_t* chosen;     ///< [rows, chosen] clusters by their ranks
  uint32_t* smallest;  ///< [rows] place_of the smallest of a row's scores
};

SPECDEC_DEVICE ClusterWorkspace workspace_of(const ScoreClustersTask& task) {
  const auto rows = static_cast<int64_t>(task.rows);
  float* scores = task.workspace;
  auto* ranks = reinterpret_cast<int32_t*>(scores + rows * task.chosen * task.each);
  int32_t* chosen = ranks + rows * task.clusters;
  return {scores, ranks, chosen, reinterpret_cast<uint32_t*>(chosen + rows * task.chosen)};
}

constexpr uint32_t kBehindAll = 0xFFFFFFFFU;

/// The place of a score in the order of all: NaN is 0, and none is kBehindAll.
__device__ inline uint32_t place_of(float score) { return score != score ? 0U : order_of(score); }

/// Whether a cluster of a score comes before another: the larger, NaN first, of equal ones the
/// lower number.
__device__ inline bool comes_before(float score, int32_t cluster, float other,
                                    int32_t other_cluster) {
  if (score == other || (score != score && other != other)) {
    return cluster < other_cluster;
  }
  return score != score || score > other;
}

/// Grid (tiles of clusters, rows).
__global__ void __launch_bounds__(kThreads) rank_clusters_kernel(ScoreClustersTask task) {
  await_earlier_kernels();
  const auto cluster = static_cast<int32_t>(blockIdx.x * kWarps + warp_index());
  if (cluster >= task.clusters) {
    return;
  }
  const auto row = static_cast<int64_t>(blockIdx.y);
  if (cluster == 0 && lane_index() == 0) {
    workspace_of(task).smallest[row] = kBehindAll;
  }
  const float* scores = task.centroid_scores + row * task.clusters;
  const float own = scores[cluster];
  int32_t rank = 0;
  for (auto other = static_cast<int32_t>(lane_index()); other < task.clusters; other += kWarp) {
    rank += comes_before(scores[other], other, own, cluster) ? 1 : 0;
  }
  rank = warp_sum(rank);
  if (lane_index() == 0) {
    const ClusterWorkspace found = workspace_of(task);
    found.ranks[row * task.clusters + cluster] = rank;
    if (rank < task.chosen) {
      found.chosen[row * task.chosen + rank] = cluster;
    }
  }
}

/// Weights of a matrix in float32.
struct FloatWeights {
  const float* weight;  ///< [any, in]
  int32_t in;

  __device__ float at(int32_t output, int32_t k) const {
    return weight[static_cast<int64_t>(output) * in + k];
  }
};

/// Weights of a matrix in fragments.
template <class Format>
struct FragmentWeights {
  FragmentMatrix matrix;
  Format format;

  __device__ float at(int32_t output, int32_t k) const {
    return fragment_weight(matrix, format, output, k);
  }
};

template <class Weights>
struct ScoreTokensTask {
  ScoreClustersTask task;
  Weights weights;
};

/// The score of a row's token, in every lane of a warp. A lane adds up every 32nd product.
template <class Weights>
__device__ inline float score_of(const ScoreTokensTask<Weights>& kernel, int64_t row,
                                 int32_t token) {
  const float* state = kernel.task.states + row * kernel.task.in;
  float sum = 0.0F;
  for (auto k = static_cast<int32_t>(lane_index()); k < kernel.task.in; k += kWarp) {
    sum = device::fused(kernel.weights.at(token, k), state[k], sum);
  }
  return warp_sum(sum);
}

/// Grid (tiles of the chosen clusters' tokens, rows). Shared memory: a place for each warp.
template <class Weights>
__global__ void __launch_bounds__(kThreads) score_tokens_kernel(ScoreTokensTask<Weights> kernel) {
  await_earlier_kernels();
  const ScoreClustersTask& task = kernel.task;
  const auto index = static_cast<int32_t>(blockIdx.x * kWarps + warp_index());
  const int32_t scored = task.chosen * task.each;
  const auto row = static_cast<int64_t>(blockIdx.y);
  const ClusterWorkspace found = workspace_of(task);
  uint32_t place = kBehindAll;
  if (index < scored) {
    const int32_t cluster = found.chosen[row * task.chosen + index / task.each];
    const float score = score_of(kernel, row, task.tokens[cluster * task.each + index % task.each]);
    place = place_of(score);
    if (lane_index() == 0) {
      found.scores[row * scored + index] = score;
    }
  }
  if (!task.fills_below) {
    return;
  }
  auto* places = reinterpret_cast<uint32_t*>(shared_memory());
  if (lane_index() == 0) {
    places[warp_index()] = place;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kWarps; ++warp) {
      place = places[warp] < place ? places[warp] : place;
    }
    atomicMin(&found.smallest[row], place);
  }
}

/// Grid (tiles of the vocabulary, rows).
__global__ void __launch_bounds__(kThreads) write_logits_kernel(ScoreClustersTask task) {
  await_earlier_kernels();
  const auto row = static_cast<int64_t>(blockIdx.y);
  const ClusterWorkspace found = workspace_of(task);
  const int32_t scored = task.chosen * task.each;
  const float* scores = found.scores + row * scored;
  const float fill =
      task.fills_below ? number_of_order(found.smallest[row]) - 1.0F : device::minus_infinity();
  const int32_t vocab = task.clusters * task.each;
  const int32_t* ranks = found.ranks + row * task.clusters;
  auto token = static_cast<int32_t>(blockIdx.x * kThreads * kTokensEach + threadIdx.x);
  for (int i = 0; i < kTokensEach && token < vocab; ++i, token += kThreads) {
    const int32_t place = task.places[token];
    const int32_t rank = ranks[place / task.each];
    task.logits[row * vocab + token] =
        rank < task.chosen ? scores[rank * task.each + place % task.each] : fill;
  }
}

/// Blocks for so many pieces of each row, `each` of them a block.
LaunchShape row_shape(const ScoreClustersTask& task, int32_t pieces, int32_t each) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((pieces + each - 1) / each);
  shape.grid_y = static_cast<unsigned>(task.rows);
  shape.threads = kThreads;
  return shape;
}

template <class Weights>
int launch_scores(const ScoreClustersTask& task, const Weights& weights, void* stream) {
  LaunchShape shape = row_shape(task, task.chosen * task.each, kWarps);
  shape.shared_bytes = kWarps * sizeof(uint32_t);
  return launch(score_tokens_kernel<Weights>, shape, stream,
                ScoreTokensTask<Weights>{task, weights});
}

int score_tokens(const ScoreClustersTask& task, void* stream) {
  if (task.format == WeightFormat::kFloat32) {
    return launch_scores(task, FloatWeights{static_cast<const float*>(task.weight), task.in},
                         stream);
  }
  return with_fragments(task.format, kInvalidValue, [&](auto format) {
    const FragmentMatrix matrix = {task.weight, task.clusters * task.each, task.in};
    return launch_scores(task, FragmentWeights<decltype(format)>{matrix, format}, stream);
  });
}

}  // namespace

int64_t specdec_cuda_score_clusters_workspace(const ScoreClustersTask* task) {
  const auto rows = static_cast<int64_t>(task->rows);
  return rows * (task->chosen * task->each + task->clusters + task->chosen + 1);
}

int specdec_cuda_score_clusters(const ScoreClustersTask* task, void* stream) {
  if (task->rows == 0) {
    return 0;
  }
  if (task->rows < 0 || task->rows > kMaxGridY || task->in <= 0 || task->each <= 0 ||
      task->chosen <= 0 || task->chosen > task->clusters) {
    return kInvalidValue;
  }
  if (const int error =
          launch(rank_clusters_kernel, row_shape(*task, task->clusters, kWarps), stream, *task);
      error != 0) {
    return error;
  }
  if (const int error = score_tokens(*task, stream); error != 0) {
    return error;
  }
  return launch(write_logits_kernel,
                row_shape(*task, task->clusters * task->each, kThreads * kTokensEach), stream,
                *task);
}

}  // namespace specdec::cuda
