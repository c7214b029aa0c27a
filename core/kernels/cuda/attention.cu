// Attention over the paged cache, in two kernels: what each chunk of positions contributes to each
// row (a query head of a node), then the chunks added up in their order (join_chunks.cu). A thread
// scores one position, dimension after dimension, and mixes one dimension, position after position,
// so a row's bits do not depend on its neighbours or on the slots its keys lie in.
#include "core/kernels/cuda/attention_parts.cuh"
#include "core/kernels/cuda/chunk_pass.cuh"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/kv_formats.cuh"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/seen_keys.cuh"
#include "core/kernels/device/activations.h"
#include "core/kernels/device/cache_address.h"
#include "core/kernels/device/numbers.h"
#include "core/kernels/device/online_softmax.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = kCudaAttentionChunk;
constexpr int kWarps = kThreads / kWarp;
// Of a multiprocessor: as many as its shared memory holds with heads of 512. Left to choose, the
// compiler takes so few registers that some formats spill them.
constexpr int kBlocks = 9;
constexpr int32_t kMaxHeadDim = 512;

/// Shared memory of a block: what its rows see of the chunk.
struct Tile {
  float* queries;    ///< [head_dim][kRows]
  float* weights;    ///< [kThreads][kRows] scores, then weights; -1 = hidden
  int32_t* visible;  ///< [kThreads][kRows] row of values, or kHidden
  int32_t* common;   ///< [kThreads] the one row that all see who see one; kHidden; else kDifferent
  int32_t* begins;   ///< [kRows] position, or number of a mean, that the row's chunk begins with
  float* levels;     ///< [2][kLevels] of a codebook: of keys, then values
};
constexpr int32_t kDifferent = -2;

__device__ inline Tile tile_in_shared(int head_dim) {
  auto* queries = reinterpret_cast<float*>(shared_memory());
  float* weights = queries + head_dim * kRows;
  auto* visible = reinterpret_cast<int32_t*>(weights + kThreads * kRows);
  int32_t* common = visible + kThreads * kRows;
  int32_t* begins = common + kThreads;
  return {queries, weights, visible, common, begins, reinterpret_cast<float*>(begins + kRows)};
}

unsigned shared_bytes(const PagedCache& cache) {
  return static_cast<unsigned>(sizeof(float)) *
         (cache.head_dim * kRows + 2 * kThreads * kRows + kThreads + kRows +
          (cache.levels == nullptr ? 0 : 2 * kLevels));
}

/// Copies the levels of the block's head.
__device__ inline void fill_levels(const PagedCache& cache, const Tile& tile) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 2 * kLevels) {
    const bool is_key = thread < kLevels;
    tile.levels[thread] = levels_of(cache, static_cast<int>(blockIdx.y), is_key)[thread % kLevels];
  }
}

__device__ inline void fill_begins(const ChunkPass& pass, const Layout& layout, const Tile& tile) {
  const auto r = static_cast<int32_t>(threadIdx.x);
  const int32_t row = static_cast<int32_t>(blockIdx.x) * kRows + r;
  if (r < kRows) {
    tile.begins[r] = row < layout.rows ? chunk_begin(pass, layout.node(row)) : 0;
  }
}

/// Reads the queries of the tile's rows, and what each sees at this thread's position.
__device__ inline void fill_tile(const ChunkPass& pass, const Layout& layout, const Tile& tile,
                                 int32_t* visible) {
  const PagedAttentionTask& task = pass.task;
  const int thread = static_cast<int>(threadIdx.x);
  const auto first = static_cast<int32_t>(blockIdx.x) * kRows;
  const auto kv_head = static_cast<int32_t>(blockIdx.y);
  const int dim = task.cache.head_dim;
  int32_t common = kHidden;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int32_t row = first + r;
    visible[r] = kHidden;
    if (row < layout.rows) {
      const int32_t node = layout.node(row);
      const int32_t position = tile.begins[r] + thread;
      visible[r] = pass.kind == ChunkKind::kMeans
                       ? visible_mean(task.cache, task.pooled, node, kv_head, position)
                       : visible_token(task.cache, task.pooled, node, kv_head, position,
                                       pass.kind == ChunkKind::kExact);
      const float* query =
          task.queries +
          (static_cast<int64_t>(node) * task.heads + layout.head(row, kv_head)) * dim;
      for (int d = thread; d < dim; d += kThreads) {
        tile.queries[d * kRows + r] = query[d];
      }
    }
    tile.visible[thread * kRows + r] = visible[r];
    if (visible[r] != kHidden) {
      common = common == kHidden || common == visible[r] ? visible[r] : kDifferent;
    }
  }
  tile.common[thread] = common;
}

/// Where element 0 of the key of a row of values lies.
__device__ inline int64_t key_of(const PagedCache& cache, int32_t row) {
  const int32_t in_page = row % cache.page_size;
  return static_cast<int64_t>(row - in_page) * cache.width + in_page;
}

/// q.k of all rows with one key.
template <class Kv>
__device__ inline void score_common(const PagedCache& cache, const Tile& tile, int32_t row,
                                    float* scores) {
  const Kv kv = kv_with<Kv>(tile.levels);
  const auto* key = static_cast<const typename Kv::Element*>(cache.keys) + key_of(cache, row);
  for (int begin = 0; begin < cache.head_dim; begin += kWarp) {
    const float scale = kv.scale(key, cache.page_size, cache.head_dim, begin / kWarp);
    const int end = begin + kWarp < cache.head_dim ? begin + kWarp : cache.head_dim;
#pragma unroll 4
    for (int d = begin; d < end; ++d) {
      const float number = kv.code(key, cache.page_size, cache.head_dim, d) * scale;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        scores[r] = device::fused(tile.queries[d * kRows + r], number, scores[r]);
      }
    }
  }
}

/// q.k of each row that sees a key at this thread's position.
template <class Kv>
__device__ inline void score_position(const PagedCache& cache, const Tile& tile,
                                      const int32_t* visible, float* scores) {
  const auto* keys = static_cast<const typename Kv::Element*>(cache.keys);
  const Kv kv = kv_with<Kv>(tile.levels);
  const int32_t common = tile.common[threadIdx.x];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    scores[r] = 0.0F;
  }
  if (common >= 0) {
    score_common<Kv>(cache, tile, common, scores);
  } else if (common == kDifferent) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (visible[r] != kHidden) {
        const auto* key = keys + key_of(cache, visible[r]);
#pragma unroll 1
        for (int d = 0; d < cache.head_dim; ++d) {
          const float number = number_at(kv, key, cache.page_size, cache.head_dim, d);
          scores[r] = device::fused(tile.queries[d * kRows + r], number, scores[r]);
        }
      }
    }
  }
}

/// The bias of a node for the key at a position.
__device__ inline float bias_at(const PagedAttentionTask& task, int32_t node, int32_t position) {
  const PagedCache& cache = task.cache;
  const int32_t slot = device::slot_at(position, cache.lengths[cache.rows[node]],
                                       cache.path_starts[node], cache.paths);
  return slot < task.bias_columns ? task.bias[static_cast<int64_t>(node) * task.bias_columns + slot]
                                  : 0.0F;
}

/// Scores of this thread's position, scaled, capped and biased, to the tile.
__device__ inline void write_scores(const ChunkPass& pass, const Layout& layout, const Tile& tile,
                                    const int32_t* visible, const float* scores) {
  const PagedAttentionTask& task = pass.task;
  const auto thread = static_cast<int32_t>(threadIdx.x);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float score = device::soft_cap(scores[r] * task.scale, task.soft_cap);
    if (pass.kind == ChunkKind::kMeans) {
      score += task.pooled.log_chunk;
    } else if (task.bias != nullptr && visible[r] != kHidden) {
      const int32_t node = layout.node(static_cast<int32_t>(blockIdx.x) * kRows + r);
      score += bias_at(task, node, tile.begins[r] + thread);
    }
    tile.weights[thread * kRows + r] = score;
  }
}

/// Turns a row's scores into weights; a warp, of which a lane has every 32nd position.
__device__ inline device::SoftmaxPart soften_row(const Tile& tile, int r) {
  const int lane = static_cast<int>(lane_index());
  float largest = device::minus_infinity();
  for (int j = lane; j < kThreads; j += kWarp) {
    const float score = tile.weights[j * kRows + r];
    if (tile.visible[j * kRows + r] != kHidden && score > largest) {
      largest = score;
    }
  }
  largest = warp_largest(largest);
  float total = 0.0F;
  for (int j = lane; j < kThreads; j += kWarp) {
    float& weight = tile.weights[j * kRows + r];
    if (tile.visible[j * kRows + r] == kHidden || largest == device::minus_infinity()) {
      weight = -1.0F;
    } else {
      weight = device::exponential(weight - largest);
      total += weight;
    }
  }
  return {largest, warp_sum(total)};
}

/// Number d of a row of values.
template <class Kv>
__device__ inline float value_at(const PagedCache& cache, const Tile& tile, int32_t row, int d) {
  const auto* values = static_cast<const typename Kv::Element*>(cache.values);
  return number_at(kv_with<Kv>(tile.levels + kLevels),
                   values + static_cast<int64_t>(row) * cache.width, 1, cache.head_dim, d);
}

/// The values of dimension d, mixed by each row's weights, position after position. A hidden value
/// is not multiplied: it may be anything.
template <class Kv>
__device__ inline void mix_dimension(const PagedCache& cache, const Tile& tile, int d,
                                     float* mixed) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    mixed[r] = 0.0F;
  }
  for (int j = 0; j < kThreads; ++j) {
    const int32_t common = tile.common[j];
    if (common == kHidden) {
      continue;
    }
    const float shared_value = common >= 0 ? value_at<Kv>(cache, tile, common, d) : 0.0F;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float weight = tile.weights[j * kRows + r];
      if (!(weight < 0.0F)) {
        const float value =
            common >= 0 ? shared_value : value_at<Kv>(cache, tile, tile.visible[j * kRows + r], d);
        mixed[r] = device::fused(weight, value, mixed[r]);
      }
    }
  }
}

/// A block: a tile of rows, a kv head and a chunk.
template <class Kv>
__global__ void __launch_bounds__(kThreads, kBlocks) chunk_kernel(ChunkPass pass) {
  const PagedAttentionTask& task = pass.task;
  const Layout layout = layout_of(task);
  if (!sees_chunk(pass, layout)) {
    return;  // nobody reads its parts
  }
  const Tile tile = tile_in_shared(task.cache.head_dim);
  const auto first = static_cast<int32_t>(blockIdx.x) * kRows;
  const auto kv_head = static_cast<int32_t>(blockIdx.y);
  const int32_t chunk = first_part(task, pass.kind) + static_cast<int32_t>(blockIdx.z);
  fill_begins(pass, layout, tile);
  __syncthreads();
  int32_t visible[kRows];
  fill_tile(pass, layout, tile, visible);
  if constexpr (std::is_same<Kv, CodebookKv>::value) {
    fill_levels(task.cache, tile);
  }
  __syncthreads();
  float numbers[kRows];
  score_position<Kv>(task.cache, tile, visible, numbers);
  write_scores(pass, layout, tile, visible, numbers);
  __syncthreads();
  for (int r = static_cast<int>(warp_index()); r < kRows; r += kWarps) {
    const device::SoftmaxPart part = soften_row(tile, r);
    if (lane_index() == 0 && first + r < layout.rows) {
      parts_of(
          task)[part_index(task, layout.node(first + r), layout.head(first + r, kv_head), chunk)] =
          part;
    }
  }
  __syncthreads();
  const int dim = task.cache.head_dim;
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += kThreads) {
    mix_dimension<Kv>(task.cache, tile, d, numbers);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first + r < layout.rows) {
        const int64_t part =
            part_index(task, layout.node(first + r), layout.head(first + r, kv_head), chunk);
        task.workspace[part * dim + d] = numbers[r];
      }
    }
  }
}

/// Whether the kernels can take the sizes of a task.
bool is_valid(const PagedAttentionTask& task) {
  const PagedCache& cache = task.cache;
  return task.nodes > 0 && task.nodes <= kMaxGridY && task.chunks >= 0 &&
         task.chunks <= kMaxGridY && task.exact_chunks >= 0 && task.exact_chunks <= kMaxGridY &&
         task.chunks + task.exact_chunks > 0 && task.mean_chunks >= 0 &&
         task.mean_chunks <= kMaxGridY && cache.kv_heads > 0 && cache.kv_heads <= kMaxGridY &&
         task.heads > 0 && task.heads % cache.kv_heads == 0 && cache.page_size > 0 &&
         cache.head_dim > 0 && cache.head_dim <= kMaxHeadDim && cache.width > 0 &&
         cache.window >= 0 && cache.sink >= 0;
}

/// Nothing where there are no chunks.
int launch_chunks(const ChunkPass& pass, int32_t chunks, void* stream) {
  if (chunks == 0) {
    return 0;
  }
  const PagedCache& cache = pass.task.cache;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(layout_of(pass.task).tiles);
  shape.grid_y = static_cast<unsigned>(cache.kv_heads);
  shape.grid_z = static_cast<unsigned>(chunks);
  shape.threads = kThreads;
  shape.shared_bytes = shared_bytes(cache);
  return with_kv_format(
      cache, [&](auto kv) { return launch(chunk_kernel<decltype(kv)>, shape, stream, pass); });
}

ChunkPass pass_of_means(const PagedAttentionTask& task) {
  ChunkPass pass = {task, ChunkKind::kMeans};
  PagedCache& cache = pass.task.cache;
  cache.keys = task.pooled.keys;
  cache.values = task.pooled.values;
  cache.format = CudaKv::kFloat32;
  cache.page_size = task.pooled.columns;
  cache.width = cache.head_dim;
  cache.levels = nullptr;
  return pass;
}

ChunkPass pass_of_exact_pages(const PagedAttentionTask& task) {
  ChunkPass pass = {task, ChunkKind::kExact};
  PagedCache& cache = pass.task.cache;
  cache.keys = cache.exact.keys;
  cache.values = cache.exact.values;
  cache.page_table = cache.exact.page_table;
  cache.format = CudaKv::kFloat32;
  cache.width = cache.head_dim;
  cache.levels = nullptr;
  return pass;
}

}  // namespace

int64_t specdec_cuda_attention_workspace(const PagedAttentionTask* task) {
  return static_cast<int64_t>(task->nodes) * task->heads * all_chunks(*task) *
         (task->cache.head_dim + 2);
}

int specdec_cuda_paged_attention(const PagedAttentionTask* task, void* stream) {
  if (task->nodes == 0) {
    return 0;
  }
  if (!is_valid(*task)) {
    return kInvalidValue;
  }
  int error = launch_chunks({*task, ChunkKind::kTokens}, task->chunks, stream);
  if (error == 0) {
    error = launch_chunks(pass_of_means(*task), task->mean_chunks, stream);
  }
  if (error == 0) {
    error = launch_chunks(pass_of_exact_pages(*task), task->exact_chunks, stream);
  }
  if (error != 0) {
    return error;
  }
  return join_chunks(*task, stream);
}

}  // namespace specdec::cuda
