// Attention over the paged cache, in two kernels: what each chunk of positions contributes to each
// row (a query head of a node), then the chunks added up in their order (join_chunks.cu). The first
// multiplies on tensor cores, by mma.m16n8k16: keys, or values, are the left operand (16 positions,
// or dimensions), 8 rows the right one, and each number is as many bfloat16 numbers as carry all
// its bits. Sums are cut every 64 dimensions of a score and every 64 positions of a mixed value.
// A group of 16 positions is read once for all rows if their nodes see the same of it, else for
// each node. So a row's bits do not depend on its neighbours or on the slots its keys lie in.
#include "core/kernels/cuda/attention_parts.cuh"
#include "core/kernels/cuda/chunk_pass.cuh"
#include "core/kernels/cuda/chunk_products.cuh"
#include "core/kernels/cuda/chunk_tile.cuh"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/kv_formats.cuh"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/activations.h"
#include "core/kernels/device/cache_address.h"
#include "core/kernels/device/online_softmax.h"

namespace specdec::cuda {
namespace {

constexpr int kBlocks = 2;  // of a multiprocessor: half of all registers each
constexpr int32_t kMaxHeadDim = 512;

static_assert(kTensorWarps == kGroups, "a warp scores a group");

/// q.k of the rows of a view with the keys of a group, to the tile; a warp.
template <class Kv>
__device__ inline void score_view(const PagedCache& cache, const Tile& tile, const SharedView& view,
                                  int group) {
  const int first = group * kGroup + column_of(0);
  const LaneKeys keys = lane_keys(cache, tile.visible + view.node * kChunk + first);
  RowSums sums;
#pragma unroll 1
  for (int begin = 0; begin * kStepInputs < cache.head_dim; begin += kSpan) {
    RowSums span;
#pragma unroll 1
    for (int first_step = 0; first_step < kSpan; first_step += kAhead<Kv>) {
      StepNumbers numbers[kAhead<Kv>];
#pragma unroll
      for (int s = 0; s < kAhead<Kv>; ++s) {
        read_keys<Kv>(cache, tile, keys, begin + first_step + s, numbers[s]);
      }
#pragma unroll
      for (int s = 0; s < kAhead<Kv>; ++s) {
        const int step = begin + first_step + s;
        if (step * kStepInputs < cache.head_dim) {
          multiply_rows<Kv>(tile, view, step, numbers[s], span);
        }
      }
    }
    sums.add(span);
  }
#pragma unroll
  for (int row_tile = 0; row_tile < kRowTiles; ++row_tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (view.has(row_of(row_tile, i))) {
        tile.scores[row_of(row_tile, i) * kScoreStride + first + i / 2] = sums.numbers[row_tile][i];
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

/// A score of q.k, scaled, capped and biased.
__device__ inline float score_of(const ChunkPass& pass, int32_t node, int offset, float product) {
  const PagedAttentionTask& task = pass.task;
  const float score = device::soft_cap(product * task.scale, task.soft_cap);
  if (pass.kind == ChunkKind::kMeans) {
    return score + task.pooled.log_chunk;
  }
  return task.bias == nullptr ? score
                              : score + bias_at(task, node, chunk_begin(pass, node) + offset);
}

/// Turns a row's scores into weights, in the place of the queries: 0 for what is hidden. A warp, of
/// which a lane has two pairs of neighbouring positions.
__device__ inline device::SoftmaxPart soften_row(const ChunkPass& pass, const TileRows& rows,
                                                 const Tile& tile, int r) {
  constexpr int kPairs = kChunk / (2 * kWarp);
  const int lane = static_cast<int>(lane_index());
  const int32_t n = rows.node(r);
  float weights[kPairs][2];
  float largest = device::minus_infinity();
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int offset = (pair * kWarp + lane) * 2 + i;
      float score = device::minus_infinity();
      if (tile.visible[n * kChunk + offset] != kHidden) {
        score = score_of(pass, rows.first_node + n, offset, tile.scores[r * kScoreStride + offset]);
      }
      largest = score > largest ? score : largest;
      weights[pair][i] = score;
    }
  }
  largest = warp_largest(largest);
  float total = 0.0F;
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& weight = weights[pair][i];
      weight = largest == device::minus_infinity() ? 0.0F : device::exponential(weight - largest);
      total += weight;
    }
    const int offset = (pair * kWarp + lane) * 2;
    put_pair(tile.fragments(offset / kGroup, r / kTileRows), r % kTileRows, offset % kGroup,
             weights[pair][0], weights[pair][1]);
  }
  return {largest, warp_sum(total)};
}

/// 16 dimensions of the values, mixed by each row's weights; a warp.
template <class Kv>
__device__ inline RowSums mix_unit(const PagedCache& cache, const TileRows& rows, const Tile& tile,
                                   int unit) {
  RowSums sums;
#pragma unroll 1
  for (int begin = 0; begin < kGroups; begin += kSpan) {
    RowSums span;
#pragma unroll 1
    for (int first = 0; first < kSpan; first += kAhead<Kv>) {
      StepNumbers numbers[kAhead<Kv>];
#pragma unroll
      for (int s = 0; s < kAhead<Kv>; ++s) {
        if (tile.same[begin + first + s] != 0) {
          read_values<Kv>(cache, tile, 0, begin + first + s, unit, numbers[s]);
        }
      }
#pragma unroll
      for (int s = 0; s < kAhead<Kv>; ++s) {
        const int group = begin + first + s;
        for_each_view(rows, tile, group, [&](const SharedView& view) {
          if (tile.same[group] == 0) {
            read_values<Kv>(cache, tile, view.node, group, unit, numbers[s]);
          }
          multiply_rows<Kv>(tile, view, group, numbers[s], span);
        });
      }
    }
    sums.add(span);
  }
  return sums;
}

/// A block: a tile of rows, a kv head and a chunk.
template <class Kv>
__global__ void __launch_bounds__(kTensorThreads, kBlocks) chunk_kernel(ChunkPass pass) {
  await_earlier_kernels();
  const PagedAttentionTask& task = pass.task;
  const PagedCache& cache = task.cache;
  const TileRows rows = tile_rows(pass);
  if (!sees_chunk(pass, rows)) {
    return;  // nobody reads its parts
  }
  const Tile tile = tile_in_shared(pass);
  const auto warp = static_cast<int>(warp_index());
  const int32_t chunk = first_part(task, pass.kind) + static_cast<int32_t>(blockIdx.z);
  const auto part_of = [&](int32_t r) {
    return part_index(task, rows.first_node + rows.node(r), rows.head(r), chunk);
  };
  fill_queries(pass, rows, tile);
  if constexpr (std::is_same<Kv, CodebookKv>::value) {
    fill_levels(cache, tile);
  }
  fill_group(pass, rows, tile, warp);
  __syncthreads();
  for_each_view(rows, tile, warp,
                [&](const SharedView& view) { score_view<Kv>(cache, tile, view, warp); });
  __syncthreads();
  for (int r = warp; r < rows.count; r += kTensorWarps) {
    const device::SoftmaxPart part = soften_row(pass, rows, tile, r);
    if (lane_index() == 0) {
      parts_of(task)[part_of(r)] = part;
    }
  }
  __syncthreads();
  for (int unit = warp; unit * kStepInputs < cache.head_dim; unit += kTensorWarps) {
    const RowSums mixed = mix_unit<Kv>(cache, rows, tile, unit);
#pragma unroll
    for (int row_tile = 0; row_tile < kRowTiles; ++row_tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = row_of(row_tile, i);
        const int d = unit * kStepInputs + column_of(i);
        if (r < rows.count && d < cache.head_dim) {
          task.workspace[part_of(r) * cache.head_dim + d] = mixed.numbers[row_tile][i];
        }
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
         cache.head_dim > 0 && cache.head_dim <= kMaxHeadDim && cache.head_dim % 2 == 0 &&
         cache.width > 0 && cache.window >= 0 && cache.sink >= 0 && has_whole_groups(cache) &&
         (task.split == nullptr || cache.head_dim % kSplitDim == 0);
}

/// Rows of a tile: as many as there are, up to a limit of which the queries fit in 48 KB.
int32_t rows_of_tile(const PagedAttentionTask& task) {
  const int32_t tiles = tiles_of(task.nodes * group_of(task), kTileRows);
  const int32_t most = task.cache.head_dim > kMaxHeadDim / 2 ? kRowTiles / 2 : kRowTiles;
  return (tiles < most ? tiles : most) * kTileRows;
}

/// Launches the blocks of `chunks` chunks; nothing where there are none.
int launch_chunks(ChunkPass pass, int32_t chunks, void* stream) {
  if (chunks == 0) {
    return 0;
  }
  const PagedCache& cache = pass.task.cache;
  pass.tile_rows = rows_of_tile(pass.task);
  LaunchShape shape;
  shape.grid_x =
      static_cast<unsigned>(tiles_of(pass.task.nodes * group_of(pass.task), pass.tile_rows));
  shape.grid_y = static_cast<unsigned>(cache.kv_heads);
  shape.grid_z = static_cast<unsigned>(chunks);
  shape.threads = kTensorThreads;
  shape.shared_bytes = shared_bytes(pass);
  return with_kv_format(
      cache, [&](auto kv) { return launch(chunk_kernel<decltype(kv)>, shape, stream, pass); });
}

ChunkPass pass_of_means(const PagedAttentionTask& task) {
  ChunkPass pass = {task, ChunkKind::kMeans, 0};
  PagedCache& cache = pass.task.cache;
  cache.keys = task.pooled.keys;
  cache.values = task.pooled.values;
  cache.format = KvFormat::kNative;
  cache.page_size = task.pooled.columns;
  cache.width = cache.head_dim;
  cache.levels = nullptr;
  return pass;
}

ChunkPass pass_of_exact_pages(const PagedAttentionTask& task) {
  ChunkPass pass = {task, ChunkKind::kExact, 0};
  PagedCache& cache = pass.task.cache;
  cache.keys = cache.exact.keys;
  cache.values = cache.exact.values;
  cache.page_table = cache.exact.page_table;
  cache.format = KvFormat::kNative;
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
  int error = launch_chunks({*task, ChunkKind::kTokens, 0}, task->chunks, stream);
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
