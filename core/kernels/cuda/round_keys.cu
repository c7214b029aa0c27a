// Groups of keys rounded by channel out of the exact pages, to the bytes that
// core/kernels/key_groups.cpp writes.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/kv_formats.cuh"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/cache_address.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 128;

static_assert(device::kRangedTokens == kWarp, "a token of a group is a lane's");

/// Whether a node completes a group in place: it and all pending ones before it lie at the slots of
/// their positions.
__device__ inline bool completes_group(const PagedCache& cache, int32_t node) {
  return cache.positions[node] >= 0 && cache.path_starts[node] < 0 &&
         cache.slots[node] % device::kRangedTokens == device::kRangedTokens - 1;
}

/// Page of a node's slot.
__device__ inline int32_t page_of(const PagedCache& cache, const int32_t* page_table,
                                  int32_t node) {
  const int64_t row = static_cast<int64_t>(cache.rows[node]) * cache.page_stride;
  return page_table[row + cache.slots[node] / cache.page_size];
}

/// A group's keys of a head: of its first token element e lies at [e * page_size].
struct RoundedHead {
  const float* exact;
  uint8_t* rounded;
};

__device__ inline RoundedHead rounded_head(const PagedCache& cache, int32_t node, int kv_head) {
  const int first = cache.slots[node] % cache.page_size - (device::kRangedTokens - 1);
  const device::PageShape exact = {cache.kv_heads, cache.head_dim, cache.page_size};
  const device::PageShape rounded = {cache.kv_heads, cache.width, cache.page_size};
  return {cache.exact.keys + device::key_offset(exact, page_of(cache, cache.exact.page_table, node),
                                                kv_head, first),
          static_cast<uint8_t*>(cache.keys) +
              device::key_offset(rounded, page_of(cache, cache.page_table, node), kv_head, first)};
}

/// Rounds the dimensions whose codes share a row of bytes, from d on; a warp.
template <class Kv>
__device__ inline void round_row(const PagedCache& cache, const RoundedHead& head, int d) {
  using Codes = typename Kv::Codes;
  const int lane = static_cast<int>(lane_index());
  const int64_t stride = cache.page_size;
  uint32_t byte = 0;
#pragma unroll
  for (int i = 0; i < Codes::kCount; ++i) {
    const float number = head.exact[(d + i) * stride + lane];
    const device::CodeRange range = range_of(number, true, Codes::kBitsOfCode);
    byte |= device::ranged_code(number, range, Codes::kBitsOfCode) << (i * Codes::kBitsOfCode);
    const int row = cache.head_dim / Codes::kCount + (d + i) / device::kRangesOfRow;
    const int column = (d + i) % device::kRangesOfRow;
    write_scale(range.least, column, head.rounded + row * stride, 1);
    write_scale(range.step, column, head.rounded + (row + Kv::range_rows(cache.head_dim)) * stride,
                1);
  }
  head.rounded[d / Codes::kCount * stride + lane] = static_cast<uint8_t>(byte);
}

/// A block: a head of the group that a node completes, if it does.
template <class Kv>
__global__ void __launch_bounds__(kThreads) round_kernel(RoundKeysTask task) {
  await_earlier_kernels();
  constexpr int kCount = Kv::Codes::kCount;
  const PagedCache& cache = task.cache;
  const auto node = static_cast<int32_t>(blockIdx.y);
  if (!completes_group(cache, node)) {
    return;
  }
  const RoundedHead head = rounded_head(cache, node, static_cast<int>(blockIdx.x));
  for (int d = static_cast<int>(warp_index()) * kCount; d < cache.head_dim;
       d += kThreads / kWarp * kCount) {
    round_row<Kv>(cache, head, d);
  }
}

/// Whether the kernel can take the sizes of a task.
bool is_valid(const RoundKeysTask& task) {
  const PagedCache& cache = task.cache;
  return task.nodes > 0 && task.nodes <= kMaxGridY && cache.kv_heads > 0 && cache.head_dim > 0 &&
         cache.page_size > 0 && has_whole_groups(cache) && cache.exact.keys != nullptr;
}

}  // namespace

int specdec_cuda_round_keys(const RoundKeysTask* task, void* stream) {
  if (task->nodes == 0) {
    return 0;
  }
  if (!is_valid(*task)) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task->cache.kv_heads);
  shape.grid_y = static_cast<unsigned>(task->nodes);
  shape.threads = kThreads;
  return with_kv_format(task->cache, [&](auto kv) {
    if constexpr (kIsRanged<decltype(kv)>) {
      return launch(round_kernel<decltype(kv)>, shape, stream, *task);
    } else {
      return kInvalidValue;
    }
  });
}

}  // namespace specdec::cuda
