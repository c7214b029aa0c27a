#include "core/kernels/metal/metal_recurrence.h"

#include <ATen/ATen.h>

#include "core/error.h"

namespace specdec::mps {

void recurrence(MetalLauncher& metal, const RecurrenceTensors& weights, const NodeStates& states,
                int64_t offset, Tensor& branches) {
  const int64_t count = branches.size(0);
  const int64_t channels = weights.convolution.size(1);
  const int64_t blocks = weights.input_gate.size(0);
  SPECDEC_CHECK(count <= states.nodes.size(0), "Metal: {} nodes have {} states", count,
                states.nodes.size(0));
  SPECDEC_CHECK(blocks > 0 && channels % blocks == 0, "Metal: {} channels in {} blocks of gates",
                channels, blocks);
  const RecurrenceSizes sizes = {int_of(count), int_of(channels),
                                 int_of(weights.convolution.size(0)), int_of(blocks),
                                 int_of(states.memory.size(1))};
  const Tensor workspace = metal.workspace(3 * count * channels);
  const KernelArray steps = {workspace, count * channels};
  (void)metal.plain(states.memory);
  const KernelArray of_layer = {states.memory, offset};
  KernelLaunch convolve = launch_of("recurrence", "convolve", "");
  convolve.arrays = {metal.plain(branches),
                     {states.nodes},
                     metal.plain(weights.convolution),
                     metal.plain(weights.convolution_bias),
                     of_layer,
                     {workspace}};
  convolve.groups = {groups_of(channels, kChannelThreads), groups_of(count, 1), 1};
  convolve.threads = kChannelThreads;
  metal.run(convolve, sizes);
  KernelLaunch gates = launch_of("recurrence", "gates", "");
  gates.arrays = {{workspace},
                  {states.nodes},
                  metal.plain(weights.input_gate),
                  metal.plain(weights.input_gate_bias),
                  metal.plain(weights.decay_gate),
                  metal.plain(weights.decay_gate_bias),
                  metal.plain(weights.decay),
                  steps};
  gates.groups = {groups_of(blocks * groups_of(channels / blocks, kChannelThreads), 1),
                  groups_of(count, kGateNodes), 1};
  gates.threads = kChannelThreads;
  gates.group_bytes = kGateInputs * kGateNodes * sizeof(float);
  metal.run(gates, sizes);
  KernelLaunch recur = launch_of("recurrence", "recur", "");
  recur.arrays = {steps, {states.nodes}, of_layer, metal.plain(branches)};
  recur.groups = {convolve.groups[0], count > 0 ? 1U : 0U, 1};
  recur.threads = kChannelThreads;
  metal.run(recur, sizes);
}

}  // namespace specdec::mps
