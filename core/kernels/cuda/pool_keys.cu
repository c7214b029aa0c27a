// Means of chunks of old keys and values, made of the pages in the order of sums that
// core/kernels/pooled_keys.cpp has.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/kv_formats.cuh"
#include "core/kernels/cuda/seen_keys.cuh"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocks = 8;  // of a multiprocessor; left to choose, the compiler spills registers

/// A head's keys or values of a row of the batch.
struct PooledHead {
  int32_t batch_row, kv_head;
  bool is_key;
};

/// A chunk, the column that its mean goes to, and the path of the node that sees it; -1: slots are
/// positions.
struct PooledChunk {
  int32_t chunk, column, path_start;
};

/// Where element 0 of a token's key or value lies; the next one is page_size or 1 further.
__device__ inline int64_t stored_at(const PagedCache& cache, const PooledHead& head, int32_t slot) {
  const int32_t page = cache.page_table[static_cast<int64_t>(head.batch_row) * cache.page_stride +
                                        slot / cache.page_size];
  const device::PageShape shape = {cache.kv_heads, cache.width, cache.page_size};
  const int32_t in_page = slot % cache.page_size;
  return head.is_key ? device::key_offset(shape, page, head.kv_head, in_page)
                     : device::value_offset(shape, page, head.kv_head, in_page);
}

/// Makes a mean; the whole block, of which a thread has every kThreads-th dimension.
template <class Kv>
__device__ inline void pool_chunk(const PoolKeysTask& task, const PooledHead& head,
                                  const PooledChunk& mean) {
  const PagedCache& cache = task.cache;
  const PooledCache& pooled = task.pooled;
  const auto* numbers =
      static_cast<const typename Kv::Element*>(head.is_key ? cache.keys : cache.values);
  const Kv kv = kv_with<Kv>(levels_of(cache, head.kv_head, head.is_key));
  const int64_t stride = head.is_key ? cache.page_size : 1;
  const int32_t first = cache.sink + mean.chunk * pooled.chunk;
  const int32_t dim = cache.head_dim;
  const device::PageShape row = {cache.kv_heads, dim, pooled.columns};
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += kThreads) {
    double sum = 0.0;
    for (int32_t position = first; position < first + pooled.chunk; ++position) {
      const int32_t slot =
          device::slot_at(position, cache.lengths[head.batch_row], mean.path_start, cache.paths);
      sum += number_at(kv, numbers + stored_at(cache, head, slot), stride, dim, d);
    }
    const auto number = static_cast<float>(sum / pooled.chunk);
    if (head.is_key) {
      const int64_t key = device::key_offset(row, head.batch_row, head.kv_head, mean.column);
      pooled.keys[key + static_cast<int64_t>(d) * pooled.columns] = number;
    } else {
      pooled.values[device::value_offset(row, head.batch_row, head.kv_head, mean.column) + d] =
          number;
    }
  }
}

/// Means that the nodes of a row share, of its kept tokens and of chains: as many as any of them
/// sees, as far as this thread looks at them.
__device__ inline int32_t shared_means(const PoolKeysTask& task, int32_t batch_row) {
  const PagedCache& cache = task.cache;
  int32_t most = 0;
  for (int node = static_cast<int>(threadIdx.x); node < task.nodes; node += kThreads) {
    if (cache.rows[node] == batch_row) {
      const int32_t means = means_at(cache, task.pooled, cache.positions[node]);
      const int32_t kept = kept_means(cache, task.pooled, node);
      const int32_t shared = cache.path_starts[node] >= 0 && means > kept ? kept : means;
      most = shared > most ? shared : most;
    }
  }
  return most;
}

/// A block: the keys, or values, of a head that a node sees. The first layer of blocks makes what
/// the nodes of a row share, where the node is the first of them; the second one its own means.
template <class Kv>
__global__ void __launch_bounds__(kThreads, kBlocks) pool_kernel(PoolKeysTask task) {
  await_earlier_kernels();
  const PagedCache& cache = task.cache;
  const auto index = static_cast<int32_t>(blockIdx.x);
  const auto node = static_cast<int32_t>(blockIdx.y);
  const PooledHead head = {cache.rows[node], index % cache.kv_heads, index < cache.kv_heads};
  int32_t* made =
      task.pooled.made + static_cast<int64_t>(head.batch_row) * 2 * cache.kv_heads + index;
  PooledChunk mean = {*made, *made, -1};
  int32_t end = 0;
  if (blockIdx.z > 0) {
    mean.path_start = cache.path_starts[node];
    mean.chunk = kept_means(cache, task.pooled, node);
    mean.column = task.pooled.own_first + node * task.pooled.own_each;
    end = mean.path_start < 0 ? 0 : means_at(cache, task.pooled, cache.positions[node]);
  } else if (node == 0 || cache.rows[node - 1] != head.batch_row) {
    end = shared_means(task, head.batch_row);
  }
  for (; __syncthreads_or(static_cast<int>(mean.chunk < end)) != 0; ++mean.chunk, ++mean.column) {
    pool_chunk<Kv>(task, head, mean);
  }
  if (blockIdx.z == 0 && threadIdx.x == 0 && mean.chunk > *made) {
    *made = mean.chunk;
  }
}

/// Whether the kernel can take the sizes of a task.
bool is_valid(const PoolKeysTask& task) {
  const PagedCache& cache = task.cache;
  const PooledCache& pooled = task.pooled;
  return task.nodes <= kMaxGridY && cache.kv_heads > 0 && cache.page_size > 0 &&
         cache.head_dim > 0 && pooled.keys != nullptr && pooled.chunk > 0 && pooled.columns > 0;
}

}  // namespace

int specdec_cuda_pool_keys(const PoolKeysTask* task, void* stream) {
  if (task->nodes == 0) {
    return 0;
  }
  if (!is_valid(*task)) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(2 * task->cache.kv_heads);
  shape.grid_y = static_cast<unsigned>(task->nodes);
  shape.grid_z = 2;
  shape.threads = kThreads;
  return with_kv_format(task->cache, [&](auto kv) {
    if constexpr (kIsRanged<decltype(kv)>) {
      return kInvalidValue;
    } else {
      return launch(pool_kernel<decltype(kv)>, shape, stream, *task);
    }
  });
}

}  // namespace specdec::cuda
