#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/cache_address.h"
#include "core/kernels/device/numbers.h"
#include "core/kernels/device/rotary.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 128;

/// Where the numbers of a head go: number i to first[i * stride].
template <class T>
struct HeadOutput {
  T* first;
  int stride;

  __device__ void put(int i, float number) const {
    first[static_cast<int64_t>(i) * stride] = device::narrow(number, T{});
  }
};

/// A head of the projection, and at which angles it is rotated.
struct HeadInput {
  const float* numbers;
  const float* scale;
  const float* cosines;
  const float* sines;
  int head_dim;
  float eps;
};

/// Norms and rotates a head; the whole block.
template <class T>
__device__ inline void rotate_head(const HeadInput& head, float* scratch, HeadOutput<T> out) {
  const int thread = static_cast<int>(threadIdx.x);
  float factor = 1.0F;
  if (head.scale != nullptr) {
    float sum = 0.0F;
    for (int i = thread; i < head.head_dim; i += kThreads) {
      sum = device::fused(head.numbers[i], head.numbers[i], sum);
    }
    sum = block_sum<kThreads>(sum, scratch);
    factor = 1.0F / sqrtf(sum / static_cast<float>(head.head_dim) + head.eps);
  }
  const int half = head.head_dim / 2;
  for (int i = thread; i < half; i += kThreads) {
    device::RotaryPair pair = {head.numbers[i], head.numbers[half + i]};
    if (head.scale != nullptr) {
      pair = {pair.low * factor * head.scale[i], pair.high * factor * head.scale[half + i]};
    }
    pair = device::rotate(pair, head.cosines[i], head.sines[i]);
    out.put(i, pair.low);
    out.put(half + i, pair.high);
  }
}

/// A block takes a head of a node: query, key or value.
template <class Kv>
__global__ void __launch_bounds__(kThreads) qkv_kernel(QkvToCacheTask task) {
  auto* scratch = reinterpret_cast<float*>(shared_memory());
  const PagedCache& cache = task.cache;
  const int head = static_cast<int>(blockIdx.x);
  const auto node = static_cast<int64_t>(blockIdx.y);
  const int32_t position = cache.positions[node];
  if (position < 0) {
    return;
  }
  const int dim = cache.head_dim;
  const int64_t angle = static_cast<int64_t>(position) * (dim / 2);
  HeadInput input = {task.qkv + (node * gridDim.x + head) * dim,
                     task.q_scale,
                     task.cosines + angle,
                     task.sines + angle,
                     dim,
                     task.eps};
  if (head < task.heads) {
    rotate_head(input, scratch,
                HeadOutput<float>{task.queries + (node * task.heads + head) * dim, 1});
    return;
  }
  const int32_t slot = cache.slots[node];
  const int32_t page =
      cache.page_table[static_cast<int64_t>(cache.rows[node]) * cache.page_capacity +
                       slot / cache.page_size];
  const int32_t in_page = slot % cache.page_size;
  const device::PageShape shape = {cache.kv_heads, dim, cache.page_size};
  if (head < task.heads + cache.kv_heads) {
    input.scale = task.k_scale;
    Kv* key =
        static_cast<Kv*>(cache.keys) + device::key_offset(shape, page, head - task.heads, in_page);
    rotate_head(input, scratch, HeadOutput<Kv>{key, cache.page_size});
    return;
  }
  Kv* value = static_cast<Kv*>(cache.values) +
              device::value_offset(shape, page, head - task.heads - cache.kv_heads, in_page);
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += kThreads) {
    value[i] = device::narrow(input.numbers[i], Kv{});
  }
}

}  // namespace

int specdec_cuda_qkv_to_cache(const QkvToCacheTask* task, void* stream) {
  if (task->nodes == 0) {
    return 0;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task->heads + 2 * task->cache.kv_heads);
  shape.grid_y = static_cast<unsigned>(task->nodes);
  shape.threads = kThreads;
  shape.shared_bytes = kThreads / kWarp * sizeof(float);
  return task->cache.bfloat16 ? launch(qkv_kernel<device::Bfloat16Bits>, shape, stream, *task)
                              : launch(qkv_kernel<float>, shape, stream, *task);
}

}  // namespace specdec::cuda
