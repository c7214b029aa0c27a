// The convolution and the gated linear recurrence of recurrent layers, in three kernels: what the
// convolution comes to and what it leaves behind, for all nodes at once, each of which finds its
// inputs by its ancestors; the gates, tiles of nodes by tiles of channels; the recurrence, in which
// a thread walks through the nodes with one channel.
#include <cuda_launch.h>

#include "core/kernels/cuda/kernels.h"
#include "core/kernels/device/recurrence.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 64;  // channels of a block
constexpr int kGateNodes = 8;
constexpr int kGateInputs = 256;  // that lie in shared memory at a time
constexpr int kNodesAhead = 8;    // whose numbers the recurrence reads at once

/// Where the layer's state begins.
__device__ inline float* state_of(const RecurrenceTask& task, int32_t state) {
  return task.states + state * task.state_stride;
}

/// The convolution's input of a channel, `back` tokens before a node; 0 before a text.
__device__ inline float input_at(const RecurrenceTask& task, int32_t node, int32_t back,
                                 int32_t channel) {
  while (back > 0 && task.nodes[node].parent >= 0) {
    node = task.nodes[node].parent;
    --back;
  }
  if (back == 0) {
    return task.branches[(2 * static_cast<int64_t>(node) + 1) * task.channels + channel];
  }
  const int32_t before = task.nodes[node].before;
  if (before < 0) {
    return 0.0F;
  }
  const int64_t row = task.width - 1 - back;
  return state_of(task, before)[row * task.channels + channel];
}

/// Grid (groups of channels, nodes).
__global__ void __launch_bounds__(kThreads) convolution_kernel(RecurrenceTask task) {
  await_earlier_kernels();
  const auto channel = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  const auto node = static_cast<int32_t>(blockIdx.y);
  if (channel >= task.channels) {
    return;
  }
  float* after = state_of(task, task.nodes[node].after) + channel;
  float sum = task.convolution_bias[channel];
  for (int32_t step = 0; step < task.width; ++step) {
    const float input = input_at(task, node, task.width - 1 - step, channel);
    sum = device::fused(
        input, task.convolution[static_cast<int64_t>(step) * task.channels + channel], sum);
    if (step > 0) {
      after[static_cast<int64_t>(step - 1) * task.channels] = input;
    }
  }
  task.workspace[static_cast<int64_t>(node) * task.channels + channel] = sum;
}

/// Where the workspace holds the recurrence's steps: of node n the decays at 2 * n, the inputs at
/// 2 * n + 1.
__device__ inline float* steps_of(const RecurrenceTask& task) {
  return task.workspace + static_cast<int64_t>(task.count) * task.channels;
}

/// Grid (tiles of channels of each block of the gates, groups of nodes). Sums are those of the
/// CPU, input after input.
__global__ void __launch_bounds__(kThreads) gates_kernel(RecurrenceTask task) {
  await_earlier_kernels();
  auto* inputs = reinterpret_cast<float*>(shared_memory());  // [kGateInputs][kGateNodes]
  const int32_t size = task.channels / task.blocks;
  const int32_t tiles = (size + kThreads - 1) / kThreads;
  const auto tile = static_cast<int32_t>(blockIdx.x);
  const int32_t block = tile / tiles;
  const int32_t own = tile % tiles * kThreads + static_cast<int32_t>(threadIdx.x);
  const auto first_node = static_cast<int32_t>(blockIdx.y) * kGateNodes;
  const int32_t nodes = task.count - first_node < kGateNodes ? task.count - first_node : kGateNodes;
  const int32_t channel = block * size + (own < size ? own : 0);
  const float* of_nodes =
      task.workspace + static_cast<int64_t>(first_node) * task.channels + block * size;
  float input_sums[kGateNodes];
  float decay_sums[kGateNodes];
#pragma unroll
  for (int n = 0; n < kGateNodes; ++n) {
    input_sums[n] = task.input_gate_bias[channel];
    decay_sums[n] = task.decay_gate_bias[channel];
  }
  for (int32_t first = 0; first < size; first += kGateInputs) {
    const int32_t count = size - first < kGateInputs ? size - first : kGateInputs;
    __syncthreads();  // the inputs before are read
    for (auto i = static_cast<int32_t>(threadIdx.x); i < count * kGateNodes; i += kThreads) {
      const int32_t node = i / count;
      const int32_t input = i % count;
      inputs[input * kGateNodes + node] =
          node < nodes ? of_nodes[static_cast<int64_t>(node) * task.channels + first + input]
                       : 0.0F;
    }
    __syncthreads();
    if (own >= size) {
      continue;
    }
    const int64_t row = (static_cast<int64_t>(block) * size + first) * size + own;
    const float* input_gate = task.input_gate + row;
    const float* decay_gate = task.decay_gate + row;
#pragma unroll 16
    for (int32_t i = 0; i < count; ++i) {
      const float input_weight = input_gate[static_cast<int64_t>(i) * size];
      const float decay_weight = decay_gate[static_cast<int64_t>(i) * size];
#pragma unroll
      for (int n = 0; n < kGateNodes; ++n) {
        const float x = inputs[i * kGateNodes + n];
        input_sums[n] = device::fused(x, input_weight, input_sums[n]);
        decay_sums[n] = device::fused(x, decay_weight, decay_sums[n]);
      }
    }
  }
  if (own >= size) {
    return;
  }
  float* steps = steps_of(task) + channel;
#pragma unroll
  for (int n = 0; n < kGateNodes; ++n) {
    if (n < nodes) {
      const int64_t node = first_node + n;
      const device::RecurrenceStep step = device::recurrence_step(
          of_nodes[static_cast<int64_t>(n) * task.channels + own], input_sums[n], decay_sums[n],
          task.decay[channel], task.nodes[node].before < 0);
      steps[2 * node * task.channels] = step.decay;
      steps[(2 * node + 1) * task.channels] = step.input;
    }
  }
}

/// Grid (groups of channels).
__global__ void __launch_bounds__(kThreads) recurrence_kernel(RecurrenceTask task) {
  await_earlier_kernels();
  const auto channel = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (channel >= task.channels) {
    return;
  }
  const float* steps = steps_of(task) + channel;
  const int64_t own = static_cast<int64_t>(task.width - 1) * task.channels + channel;
  float h = 0.0F;
  for (int32_t first = 0; first < task.count; first += kNodesAhead) {
    device::RecurrenceStep ahead[kNodesAhead] = {};
#pragma unroll
    for (int i = 0; i < kNodesAhead; ++i) {
      if (first + i < task.count) {
        const float* step = steps + 2 * static_cast<int64_t>(first + i) * task.channels;
        ahead[i].decay = step[0];
        ahead[i].input = step[task.channels];
      }
    }
#pragma unroll
    for (int i = 0; i < kNodesAhead; ++i) {
      const int32_t node = first + i;
      if (node < task.count) {
        const RecurrenceNode place = task.nodes[node];
        if (place.parent < 0 || place.parent != node - 1) {
          h = place.before < 0 ? 0.0F : state_of(task, place.before)[own];
        }
        h = device::fused(ahead[i].decay, h, ahead[i].input);
        state_of(task, place.after)[own] = h;
        task.branches[(2 * static_cast<int64_t>(node) + 1) * task.channels + channel] = h;
      }
    }
  }
}

unsigned groups(int32_t size, int32_t of) { return static_cast<unsigned>((size + of - 1) / of); }

}  // namespace

int64_t specdec_cuda_recurrence_workspace(const RecurrenceTask* task) {
  return 3 * static_cast<int64_t>(task->count) * task->channels;
}

int specdec_cuda_recurrence(const RecurrenceTask* task, void* stream) {
  if (task->count == 0) {
    return 0;
  }
  if (task->count < 0 || task->count > kMaxGridY || task->channels <= 0 || task->width <= 0 ||
      task->blocks <= 0 || task->channels % task->blocks != 0) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.threads = kThreads;
  shape.grid_x = groups(task->channels, kThreads);
  shape.grid_y = static_cast<unsigned>(task->count);
  if (const int error = launch(convolution_kernel, shape, stream, *task); error != 0) {
    return error;
  }
  LaunchShape gates;
  gates.threads = kThreads;
  gates.grid_x =
      static_cast<unsigned>(task->blocks) * groups(task->channels / task->blocks, kThreads);
  gates.grid_y = groups(task->count, kGateNodes);
  gates.shared_bytes = kGateInputs * kGateNodes * sizeof(float);
  if (const int error = launch(gates_kernel, gates, stream, *task); error != 0) {
    return error;
  }
  shape.grid_y = 1;
  return launch(recurrence_kernel, shape, stream, *task);
}

}  // namespace specdec::cuda
