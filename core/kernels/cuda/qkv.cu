#include "core/kernels/cuda/hadamard.cuh"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/kv_formats.cuh"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/cache_address.h"
#include "core/kernels/device/numbers.h"
#include "core/kernels/device/rotary.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 128;

/// A head of the projection, and at which angles it is rotated.
struct HeadInput {
  const float* numbers;
  const float* scale;
  const float* cosines;
  const float* sines;
  int head_dim;
  float eps;
};

/// 1 / the root mean square of a head, in every thread.
__device__ inline float inverse_rms(const HeadInput& head, float* scratch) {
  float sum = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < head.head_dim; i += kThreads) {
    sum = device::fused(head.numbers[i], head.numbers[i], sum);
  }
  sum = block_sum<kThreads>(sum, scratch);
  return 1.0F / sqrtf(sum / static_cast<float>(head.head_dim) + head.eps);
}

/// Norms and rotates a head; the whole block.
__device__ inline void rotate_head(const HeadInput& head, float* scratch, float* out) {
  const float factor = head.scale == nullptr ? 1.0F : inverse_rms(head, scratch);
  const int half = head.head_dim / 2;
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kThreads) {
    device::RotaryPair pair = {head.numbers[i], head.numbers[half + i]};
    if (head.scale != nullptr) {
      pair = {pair.low * factor * head.scale[i], pair.high * factor * head.scale[half + i]};
    }
    pair = device::rotate(pair, head.cosines[i], head.sines[i]);
    out[i] = pair.low;
    out[half + i] = pair.high;
  }
}

/// A head of values, normed where that is asked for; the whole block.
__device__ inline void scale_value(const HeadInput& head, bool norm, float* scratch, float* out) {
  const float factor = norm ? inverse_rms(head, scratch) : 1.0F;  // * 1 changes no bit
  for (int i = static_cast<int>(threadIdx.x); i < head.head_dim; i += kThreads) {
    out[i] = head.numbers[i] * factor;
  }
}

/// A key or value of a node.
struct NewHead {
  int64_t node;
  int kv_head;
  bool is_key;
};

/// Pages of a form.
struct WrittenPages {
  void* pages;  ///< of keys, or of values
  const int32_t* page_table;
  int32_t width;
};

/// Writes the numbers of a head; the whole block.
template <class Kv>
__device__ inline void write_head(const PagedCache& cache, const WrittenPages& to,
                                  const NewHead& head, const float* numbers) {
  using Element = typename Kv::Element;
  const auto [node, kv_head, is_key] = head;
  const int32_t slot = cache.slots[node];
  const int32_t in_page = slot % cache.page_size;
  const int64_t row = static_cast<int64_t>(cache.rows[node]) * cache.page_stride;
  const int32_t page = to.page_table[row + slot / cache.page_size];
  const device::PageShape shape = {cache.kv_heads, to.width, cache.page_size};
  Element* first = static_cast<Element*>(to.pages) +
                   (is_key ? device::key_offset(shape, page, kv_head, in_page)
                           : device::value_offset(shape, page, kv_head, in_page));
  const Kv kv = kv_with<Kv>(levels_of(cache, kv_head, is_key));
  kv.template write<kThreads>(numbers, cache.head_dim, first, is_key ? cache.page_size : 1);
}

/// A block takes a head of a node: query, key or value. Keys and values, and what a Hadamard matrix
/// is multiplied with, are made in shared memory.
template <class Kv>
__global__ void __launch_bounds__(kThreads) qkv_kernel(QkvToCacheTask task) {
  await_earlier_kernels();
  auto* scratch = reinterpret_cast<float*>(shared_memory());
  float* numbers = scratch + kThreads / kWarp;
  const PagedCache& cache = task.cache;
  const int head = static_cast<int>(blockIdx.x);
  const auto node = static_cast<int64_t>(blockIdx.y);
  if (cache.positions[node] < 0) {
    return;
  }
  const int dim = cache.head_dim;
  const int64_t width = task.heads + task.kv_projections * cache.kv_heads;
  const int64_t angle = static_cast<int64_t>(cache.angles[node]) * (dim / 2);
  HeadInput input = {task.qkv + (node * width + head) * dim,
                     task.q_scale,
                     task.cosines + angle,
                     task.sines + angle,
                     dim,
                     task.eps};
  if (head < task.heads) {
    float* query = task.queries + (node * task.heads + head) * dim;
    rotate_head(input, scratch, cache.hadamard ? numbers : query);
    if (cache.hadamard) {
      hadamard_head<kThreads>(numbers, dim, query);
    }
    return;
  }
  const bool is_key = head < task.heads + cache.kv_heads;
  if (is_key) {
    input.scale = task.k_scale;
    rotate_head(input, scratch, numbers);
  } else {
    if (task.kv_projections == 1) {
      input.numbers -= static_cast<int64_t>(cache.kv_heads) * dim;
    }
    scale_value(input, task.value_norm, scratch, numbers);
  }
  if (cache.hadamard) {
    hadamard_head<kThreads>(numbers, dim, numbers);
  }
  __syncthreads();
  const NewHead written = {node, (head - task.heads) % cache.kv_heads, is_key};
  if (!kIsRanged<Kv> || !is_key) {  // such keys wait in the exact pages for their group
    write_head<Kv>(cache, {is_key ? cache.keys : cache.values, cache.page_table, cache.width},
                   written, numbers);
  }
  if (cache.exact.recent > 0) {
    write_head<FloatKv<float>>(
        cache, {is_key ? cache.exact.keys : cache.exact.values, cache.exact.page_table, dim},
        written, numbers);
  }
}

/// Whether the kernel can take the sizes of a task.
bool is_valid(const QkvToCacheTask& task) {
  const PagedCache& cache = task.cache;
  return task.nodes > 0 && task.nodes <= kMaxGridY && task.heads >= 0 &&
         task.heads + task.kv_projections > 0 && task.kv_projections >= 0 &&
         task.kv_projections <= 2 && cache.head_dim > 0 && cache.head_dim % 2 == 0 &&
         (task.kv_projections == 0 ||
          (cache.kv_heads > 0 && cache.page_size > 0 && has_whole_groups(cache)));
}

}  // namespace

int specdec_cuda_qkv_to_cache(const QkvToCacheTask* task, void* stream) {
  if (task->nodes == 0) {
    return 0;
  }
  if (!is_valid(*task)) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task->heads +
                                       (task->kv_projections == 0 ? 0 : 2 * task->cache.kv_heads));
  shape.grid_y = static_cast<unsigned>(task->nodes);
  shape.threads = kThreads;
  shape.shared_bytes =
      static_cast<unsigned>((kThreads / kWarp + task->cache.head_dim) * sizeof(float));
  return with_kv_format(
      task->cache, [&](auto kv) { return launch(qkv_kernel<decltype(kv)>, shape, stream, *task); });
}

}  // namespace specdec::cuda
