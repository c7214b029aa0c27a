// Parallel residual streams. A thread takes a column of all streams of a token.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 256;
/// Smallest mean of squares that match_rms divides by.
constexpr float kSmallestSquare = 1e-5F;

__device__ inline float mean_square(const float* numbers, int32_t size, float* scratch) {
  float sum = 0.0F;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < size; i += kThreads) {
    sum = device::fused(numbers[i], numbers[i], sum);
  }
  return block_sum<kThreads>(sum, scratch) / static_cast<float>(size);
}

/// A block takes a token.
__global__ void __launch_bounds__(kThreads) route_kernel(AltUpRouteTask task) {
  await_earlier_kernels();
  auto* scratch = reinterpret_cast<float*>(shared_memory());
  const auto row = static_cast<int64_t>(blockIdx.x);
  const float* input = task.input + row * task.size;
  const float factor = 1.0F / sqrtf(mean_square(input, task.size, scratch) + task.eps);
  for (int32_t stream = 0; stream < task.streams; ++stream) {
    const float* weight = task.weight + static_cast<int64_t>(stream) * task.size;
    float sum = 0.0F;
    for (auto i = static_cast<int32_t>(threadIdx.x); i < task.size; i += kThreads) {
      sum = device::fused(input[i] * factor * task.norm[i], weight[i], sum);
    }
    sum = block_sum<kThreads>(sum, scratch);
    if (threadIdx.x == 0) {
      task.out[row * task.streams + stream] = device::hyperbolic_tangent(sum);
    }
  }
}

/// out = matrix [outputs, count] * a token's routes, in shared memory; the whole block.
__device__ inline void multiply_routes(const float* matrix, const float* routes, int32_t outputs,
                                       int32_t count, float* out) {
  for (auto o = static_cast<int32_t>(threadIdx.x); o < outputs; o += kThreads) {
    float sum = 0.0F;
    for (int32_t i = 0; i < count; ++i) {
      sum = device::fused(matrix[o * count + i], routes[i], sum);
    }
    out[o] = sum;
  }
  __syncthreads();
}

/// Numbers of one column, a stream each.
struct Column {
  float of_stream[kCudaStreams];
};

__device__ inline Column read_column(const float* streams, int64_t stride, int32_t count) {
  Column column;
#pragma unroll
  for (int32_t s = 0; s < kCudaStreams; ++s) {
    column.of_stream[s] = s < count ? streams[s * stride] : 0.0F;
  }
  return column;
}

/// Grid (groups of columns, tokens).
__global__ void __launch_bounds__(kThreads) predict_kernel(AltUpPredictTask task) {
  await_earlier_kernels();
  auto* shares = reinterpret_cast<float*>(shared_memory());
  const auto row = static_cast<int64_t>(blockIdx.y);
  multiply_routes(task.coefficients, task.routes + row * task.count, task.count * task.count,
                  task.count, shares);
  const auto i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= task.size) {
    return;
  }
  const int64_t stride = static_cast<int64_t>(task.rows) * task.size;
  const int64_t first = row * task.size + i;
  const Column column = read_column(task.streams + first, stride, task.count);
#pragma unroll
  for (int32_t p = 0; p < kCudaStreams; ++p) {
    if (p >= task.count) {
      break;
    }
    float sum = column.of_stream[p];
#pragma unroll
    for (int32_t q = 0; q < kCudaStreams; ++q) {
      if (q < task.count) {
        sum = device::fused(shares[p * task.count + q], column.of_stream[q], sum);
      }
    }
    task.out[p * stride + first] = sum;
  }
}

/// Grid (groups of columns, tokens).
__global__ void __launch_bounds__(kThreads) correct_kernel(AltUpCorrectTask task) {
  await_earlier_kernels();
  auto* shares = reinterpret_cast<float*>(shared_memory());
  const auto row = static_cast<int64_t>(blockIdx.y);
  multiply_routes(task.coefficients, task.routes + row * task.count, task.count, task.count,
                  shares);
  const auto i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= task.size) {
    return;
  }
  const int64_t stride = static_cast<int64_t>(task.rows) * task.size;
  const int64_t first = row * task.size + i;
  const float innovation = task.activated[first] - task.streams[task.active * stride + first];
  for (int32_t p = 0; p < task.count; ++p) {
    float& number = task.streams[p * stride + first];
    number = device::fused(shares[p] + 1.0F, innovation, number);
  }
}

/// A block takes a row.
__global__ void __launch_bounds__(kThreads) match_rms_kernel(MatchRmsTask task) {
  await_earlier_kernels();
  auto* scratch = reinterpret_cast<float*>(shared_memory());
  const int64_t first = static_cast<int64_t>(blockIdx.x) * task.size;
  float* values = task.values + first;
  const float wanted = sqrtf(mean_square(task.like + first, task.size, scratch));
  const float square = mean_square(values, task.size, scratch);
  const float found = sqrtf(square < kSmallestSquare ? kSmallestSquare : square);
  for (auto i = static_cast<int32_t>(threadIdx.x); i < task.size; i += kThreads) {
    values[i] = values[i] * wanted / found;
  }
}

__global__ void __launch_bounds__(kThreads) mean_stream_kernel(MeanStreamTask task) {
  await_earlier_kernels();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= task.size) {
    return;
  }
  float sum = 0.0F;
  for (int32_t s = 0; s < task.count; ++s) {
    sum += task.streams[s * task.size + i];
  }
  task.out[i] = sum / static_cast<float>(task.count);
}

/// Blocks that take a row each.
LaunchShape row_shape(int32_t rows) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(rows);
  shape.threads = kThreads;
  shape.shared_bytes = kThreads / kWarp * sizeof(float);
  return shape;
}

/// Blocks that take some columns of a token each, with `shares` numbers in shared memory.
LaunchShape column_shape(int32_t rows, int32_t size, int32_t shares) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((size + kThreads - 1) / kThreads);
  shape.grid_y = static_cast<unsigned>(rows);
  shape.threads = kThreads;
  shape.shared_bytes = static_cast<unsigned>(shares * sizeof(float));
  return shape;
}

bool can_take(int32_t streams, int32_t rows) {
  return streams > 0 && streams <= kCudaStreams && rows > 0 && rows <= kMaxGridY;
}

}  // namespace

int specdec_cuda_altup_route(const AltUpRouteTask* task, void* stream) {
  if (task->rows == 0) {
    return 0;
  }
  return can_take(task->streams, task->rows)
             ? launch(route_kernel, row_shape(task->rows), stream, *task)
             : kInvalidValue;
}

int specdec_cuda_altup_predict(const AltUpPredictTask* task, void* stream) {
  if (task->rows == 0 || task->size == 0) {
    return 0;
  }
  if (!can_take(task->count, task->rows)) {
    return kInvalidValue;
  }
  const int32_t shares = task->count * task->count;
  return launch(predict_kernel, column_shape(task->rows, task->size, shares), stream, *task);
}

int specdec_cuda_altup_correct(const AltUpCorrectTask* task, void* stream) {
  if (task->rows == 0 || task->size == 0) {
    return 0;
  }
  if (!can_take(task->count, task->rows) || task->active < 0 || task->active >= task->count) {
    return kInvalidValue;
  }
  return launch(correct_kernel, column_shape(task->rows, task->size, task->count), stream, *task);
}

int specdec_cuda_match_rms(const MatchRmsTask* task, void* stream) {
  return task->rows == 0 ? 0 : launch(match_rms_kernel, row_shape(task->rows), stream, *task);
}

int specdec_cuda_mean_stream(const MeanStreamTask* task, void* stream) {
  if (task->size == 0) {
    return 0;
  }
  if (task->count <= 0 || task->size < 0) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((task->size + kThreads - 1) / kThreads);
  shape.threads = kThreads;
  return launch(mean_stream_kernel, shape, stream, *task);
}

}  // namespace specdec::cuda
