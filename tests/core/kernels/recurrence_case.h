#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/kernels/recurrence.h"

// Random recurrent layers, and nodes in trees and chains.

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

}  // namespace specdec
