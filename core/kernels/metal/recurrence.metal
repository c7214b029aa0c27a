// The convolution and the gated linear recurrence of recurrent layers, in three kernels: what the
// convolution comes to and what it leaves behind, for all nodes at once, each of which finds its
// inputs by its ancestors; the gates, tiles of nodes by tiles of channels; the recurrence, in which
// a thread walks through the nodes with one channel.
#include "core/kernels/device/recurrence.h"
#include "core/kernels/metal/reduce.metalh"

using namespace specdec;

namespace {

/// Where a node is: NodeState of core/kernels/recurrence.h.
struct NodePlace {
  int32_t parent;
  int32_t before;
  int32_t after;
};

/// The layer's numbers, those of the branches among them.
struct Branches {
  const device float* numbers;  ///< [nodes, 2, channels]
  const device NodePlace* nodes;
  const device float* states;  ///< of the layer, in state 0
};

/// The convolution's input of a channel, `back` tokens before a node; 0 before a text.
inline float input_at(Branches branches, constant mps::RecurrenceSizes& sizes, int32_t node,
                      int32_t back, int32_t channel) {
  while (back > 0 && branches.nodes[node].parent >= 0) {
    node = branches.nodes[node].parent;
    --back;
  }
  if (back == 0) {
    return branches.numbers[(2 * static_cast<int64_t>(node) + 1) * sizes.channels + channel];
  }
  const int32_t before = branches.nodes[node].before;
  if (before < 0) {
    return 0.0F;
  }
  const int64_t row = sizes.width - 1 - back;
  return branches
      .states[static_cast<int64_t>(before) * sizes.state_stride + row * sizes.channels + channel];
}

}  // namespace

/// Grid (groups of channels, nodes). `out`: [nodes, channels].
kernel void convolve(const device float* numbers [[buffer(0)]],
                     const device NodePlace* nodes [[buffer(1)]],
                     const device float* convolution [[buffer(2)]],
                     const device float* bias [[buffer(3)]], device float* states [[buffer(4)]],
                     device float* out [[buffer(5)]],
                     constant mps::RecurrenceSizes& sizes [[buffer(6)]],
                     uint3 group [[threadgroup_position_in_grid]],
                     uint3 local [[thread_position_in_threadgroup]]) {
  const int32_t channel = static_cast<int32_t>(group.x * mps::kChannelThreads + local.x);
  const int32_t node = static_cast<int32_t>(group.y);
  if (channel >= sizes.channels) {
    return;
  }
  const Branches branches = {numbers, nodes, states};
  device float* after =
      states + static_cast<int64_t>(nodes[node].after) * sizes.state_stride + channel;
  float sum = bias[channel];
  for (int32_t step = 0; step < sizes.width; ++step) {
    const float input = input_at(branches, sizes, node, sizes.width - 1 - step, channel);
    sum = portable::fused(input, convolution[static_cast<int64_t>(step) * sizes.channels + channel],
                          sum);
    if (step > 0) {
      after[static_cast<int64_t>(step - 1) * sizes.channels] = input;
    }
  }
  out[static_cast<int64_t>(node) * sizes.channels + channel] = sum;
}

namespace {

/// Sums of a channel's gates, of each node of a tile.
struct GateSums {
  float input[mps::kGateNodes];
  float decay[mps::kGateNodes];
};

/// Copies `count` inputs of a tile's nodes from `from` on, 0 for nodes that do not exist; the whole
/// group.
inline void copy_inputs(const device float* from, int32_t nodes, int32_t count, int32_t channels,
                        int32_t thread_index, threadgroup float* inputs) {
  mps::wait_for_group();  // the inputs before are read
  for (int32_t i = thread_index; i < count * mps::kGateNodes; i += mps::kChannelThreads) {
    const int32_t node = i / count;
    const int32_t input = i % count;
    inputs[input * mps::kGateNodes + node] =
        node < nodes ? from[static_cast<int64_t>(node) * channels + input] : 0.0F;
  }
  mps::wait_for_group();
}

/// Adds products of these inputs with columns of both gates, input after input as the CPU does.
inline void add_inputs(const device float* input_gate, const device float* decay_gate,
                       int32_t stride, int32_t count, threadgroup float* inputs,
                       thread GateSums& sums) {
  for (int32_t i = 0; i < count; ++i) {
    const float input_weight = input_gate[static_cast<int64_t>(i) * stride];
    const float decay_weight = decay_gate[static_cast<int64_t>(i) * stride];
    for (int32_t n = 0; n < mps::kGateNodes; ++n) {
      const float x = inputs[i * mps::kGateNodes + n];
      sums.input[n] = portable::fused(x, input_weight, sums.input[n]);
      sums.decay[n] = portable::fused(x, decay_weight, sums.decay[n]);
    }
  }
}

}  // namespace

/// Grid (tiles of channels of each block of the gates, groups of nodes). `steps`: [nodes, 2,
/// channels], the decays and the inputs of the recurrence.
kernel void gates(
    const device float* convolved [[buffer(0)]], const device NodePlace* nodes [[buffer(1)]],
    const device float* input_gate [[buffer(2)]], const device float* input_bias [[buffer(3)]],
    const device float* decay_gate [[buffer(4)]], const device float* decay_bias [[buffer(5)]],
    const device float* decay [[buffer(6)]], device float* steps [[buffer(7)]],
    constant mps::RecurrenceSizes& sizes [[buffer(8)]], threadgroup float* inputs GROUP_MEMORY,
    uint3 group [[threadgroup_position_in_grid]], uint3 local [[thread_position_in_threadgroup]]) {
  const int32_t thread_index = static_cast<int32_t>(local.x);
  const int32_t size = sizes.channels / sizes.blocks;
  const int32_t tiles = (size + mps::kChannelThreads - 1) / mps::kChannelThreads;
  const int32_t tile = static_cast<int32_t>(group.x);
  const int32_t block = tile / tiles;
  const int32_t own = tile % tiles * mps::kChannelThreads + thread_index;
  const bool exists = own < size;
  const int32_t channel = block * size + (exists ? own : 0);
  const int32_t first_node = static_cast<int32_t>(group.y) * mps::kGateNodes;
  const int32_t left = sizes.count - first_node;
  const int32_t count_of_nodes = left < mps::kGateNodes ? left : mps::kGateNodes;
  const device float* of_nodes =
      convolved + static_cast<int64_t>(first_node) * sizes.channels + block * size;
  GateSums sums;
  for (int32_t n = 0; n < mps::kGateNodes; ++n) {
    sums.input[n] = input_bias[channel];
    sums.decay[n] = decay_bias[channel];
  }
  for (int32_t first = 0; first < size; first += mps::kGateInputs) {
    const int32_t count = size - first < mps::kGateInputs ? size - first : mps::kGateInputs;
    copy_inputs(of_nodes + first, count_of_nodes, count, sizes.channels, thread_index, inputs);
    if (exists) {
      const int64_t row = (static_cast<int64_t>(block) * size + first) * size + own;
      add_inputs(input_gate + row, decay_gate + row, size, count, inputs, sums);
    }
  }
  if (!exists) {
    return;
  }
  for (int32_t n = 0; n < count_of_nodes; ++n) {
    const int64_t node = first_node + n;
    const portable::RecurrenceStep step = portable::recurrence_step(
        of_nodes[static_cast<int64_t>(n) * sizes.channels + own], sums.input[n], sums.decay[n],
        decay[channel], nodes[node].before < 0);
    steps[2 * node * sizes.channels + channel] = step.decay;
    steps[(2 * node + 1) * sizes.channels + channel] = step.input;
  }
}

/// Grid (groups of channels).
kernel void recur(const device float* steps [[buffer(0)]],
                  const device NodePlace* nodes [[buffer(1)]], device float* states [[buffer(2)]],
                  device float* numbers [[buffer(3)]],
                  constant mps::RecurrenceSizes& sizes [[buffer(4)]],
                  uint3 group [[threadgroup_position_in_grid]],
                  uint3 local [[thread_position_in_threadgroup]]) {
  const int32_t channel = static_cast<int32_t>(group.x * mps::kChannelThreads + local.x);
  if (channel >= sizes.channels) {
    return;
  }
  const int64_t own = static_cast<int64_t>(sizes.width - 1) * sizes.channels + channel;
  float h = 0.0F;
  for (int32_t node = 0; node < sizes.count; ++node) {
    const device NodePlace& place = nodes[node];
    const int64_t step = 2 * static_cast<int64_t>(node) * sizes.channels + channel;
    if (place.parent < 0 || place.parent != node - 1) {
      h = place.before < 0 ? 0.0F
                           : states[static_cast<int64_t>(place.before) * sizes.state_stride + own];
    }
    h = portable::fused(steps[step], h, steps[step + sizes.channels]);
    states[static_cast<int64_t>(place.after) * sizes.state_stride + own] = h;
    numbers[step + sizes.channels] = h;
  }
}
