#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/recurrence.h"

// Random recurrent layers, nodes in trees and chains, and what kernels of any device keep to.

namespace specdec {

/// Where a layer begins in states of two layers.
inline constexpr int64_t kLayerOffset = 5;
inline constexpr int64_t kStates = 24;

struct RecurrenceShape {
  int64_t blocks, size, width;
  int64_t channels() const { return blocks * size; }
};

inline RecurrenceTensors random_recurrence(const RecurrenceShape& shape) {
  const auto gate = [&] {
    return at::randn({shape.blocks, shape.size, shape.size}) /
           std::sqrt(static_cast<double>(shape.size));
  };
  const auto row = [&] { return at::randn({shape.channels()}); };
  RecurrenceTensors out;
  out.convolution = at::randn({shape.width, shape.channels()});
  out.convolution_bias = row();
  out.input_gate = gate();
  out.input_gate_bias = row();
  out.decay_gate = gate();
  out.decay_gate_bias = row();
  out.decay = -row().abs() - 0.01;
  return out;
}

/// Nodes whose states lie in no order: of two texts that go on, state 3 and state 1, and of one
/// that begins.
inline std::vector<NodeState> nodes_of_trees() {
  return {{-1, 3, 20}, {0, 20, 4}, {0, 20, 17}, {2, 17, 5}, {1, 4, 6},    {4, 6, 7},  {3, 5, 8},
          {-1, 1, 9},  {7, 9, 10}, {-1, -1, 0}, {9, 0, 12}, {10, 12, 13}, {9, 0, 14}, {-1, 3, 15}};
}

inline std::vector<NodeState> nodes_of_chain(int32_t count, int32_t before) {
  std::vector<NodeState> nodes;
  for (int32_t node = 0; node < count; ++node) {
    nodes.push_back({node - 1, node == 0 ? before : node + 3, node + 4});
  }
  return nodes;
}

inline NodeStates states_of(const Tensor& memory, const std::vector<NodeState>& nodes) {
  const Tensor table = at::empty({std::ssize(nodes), 3}, at::kInt);
  std::copy(nodes.begin(), nodes.end(),
            reinterpret_cast<NodeState*>(table.mutable_data_ptr<int32_t>()));
  return {memory, table};
}

inline Tensor random_states(const RecurrenceShape& shape) {
  return at::randn({kStates, kLayerOffset + 2 * shape.width * shape.channels()});
}

/// A node's branch, as the others' does not matter.
inline Tensor branch_of(const Tensor& branches, int64_t node) {
  return branches[node].narrow(0, branches.size(1) / 2, branches.size(1) / 2);
}

/// The recurrence of the layer at kLayerOffset by the kernels of a device, which the emulation
/// runs.
using DeviceRecurrence =
    std::function<void(const RecurrenceTensors&, const NodeStates&, Tensor& branches)>;

inline void expect_the_ops_recurrence(const DeviceRecurrence& run) {
  for (const RecurrenceShape& shape :
       {RecurrenceShape{2, 12, 4}, {1, 300, 4}, {3, 70, 2}, {4, 1, 1}, {2, 64, 6}}) {
    for (const auto& nodes : {nodes_of_trees(), nodes_of_chain(1, 2), nodes_of_chain(19, -1),
                              std::vector<NodeState>()}) {
      cuda::emulation::set_seed(static_cast<uint64_t>(shape.size) + nodes.size());
      const RecurrenceTensors weights = random_recurrence(shape);
      const Tensor memory = random_states(shape);
      Tensor branches = at::randn({std::ssize(nodes), 2 * shape.channels()});
      const Tensor expected_memory = memory.clone();
      Tensor expected = branches.clone();
      recurrence(weights, states_of(expected_memory, nodes), kLayerOffset, expected);
      run(weights, states_of(memory, nodes), branches);
      EXPECT_TRUE(at::allclose(branches, expected, 1e-4, 1e-5)) << shape.size;
      EXPECT_TRUE(at::allclose(memory, expected_memory, 1e-4, 1e-5))
          << shape.size << ": of no other state or layer is anything changed";
    }
  }
}

inline void expect_bits_of_the_path_alone(const DeviceRecurrence& run) {
  const RecurrenceShape shape{2, 70, 4};
  const RecurrenceTensors weights = random_recurrence(shape);
  const auto nodes = nodes_of_trees();
  const Tensor inputs = at::randn({std::ssize(nodes), 2 * shape.channels()});
  inputs[2].fill_(std::numeric_limits<float>::quiet_NaN());  // of another branch
  const Tensor memory = random_states(shape);
  const Tensor one_by_one = memory.clone();
  Tensor together = inputs.clone();
  run(weights, states_of(memory, nodes), together);
  for (const size_t node : {0U, 1U, 4U, 5U, 7U, 8U, 9U, 10U, 12U, 13U}) {
    const auto place = static_cast<int64_t>(node);
    cuda::emulation::set_seed(node);
    Tensor alone = inputs.narrow(0, place, 1).clone();
    run(weights, states_of(one_by_one, {{-1, nodes[node].before, nodes[node].after}}), alone);
    EXPECT_TRUE(at::equal(branch_of(alone, 0), branch_of(together, place))) << node;
    const auto state = [&](const Tensor& all) {
      return all[nodes[node].after].narrow(0, kLayerOffset, shape.width * shape.channels());
    };
    EXPECT_TRUE(at::equal(state(one_by_one), state(memory))) << node;
  }
  EXPECT_TRUE(branch_of(together, 6).isnan().all().item<bool>()) << "behind node 2";
}

}  // namespace specdec
