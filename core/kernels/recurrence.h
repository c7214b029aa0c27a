#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace specdec {

using at::Tensor;

/// States of the recurrent layers that a forward's new nodes start from and leave behind, each
/// a block of numbers of the activations' dtype in which every layer has its place. Owned by the
/// cache; valid until its next change.
struct NodeStates {
  std::vector<const std::byte*> before;  ///< [nodes] nullptr = the node begins a text
  std::vector<std::byte*> after;         ///< [nodes]
};

/// What a recurrent layer reads beside its matrices, in the compute dtype; undefined in others.
struct RecurrenceTensors {
  Tensor convolution;       ///< [width, channels]: the oldest token's factors first
  Tensor convolution_bias;  ///< [channels]
  Tensor input_gate;        ///< [blocks, inputs, outputs] of as many channels a block
  Tensor input_gate_bias;   ///< [channels]
  Tensor decay_gate;        ///< as input_gate
  Tensor decay_gate_bias;   ///< [channels]
  Tensor decay;             ///< [channels] logarithm of a state's decay where the gate is 1

  bool defined() const { return convolution.defined(); }
};

/// The branch of a recurrent block through its causal convolution and its gated linear recurrence
/// (RG-LRU: De et al., 2024, arXiv:2402.19427, Section 2.4), in place: columns channels to
/// 2 * channels of `branches` [n, 2 * channels], contiguous, float32 or float64. For each node,
/// with x the convolution's output, r and i the sigmoids of its gates:
///
///   log a = decay * r,  h = a * (the state before) + sqrt(1 - a^2) * i * x,
///
/// and h = i * x where a text begins. Nodes are evaluated in order, each from its state before, so
/// that a node's bits depend on its own path alone. A layer's state [width, channels] begins at
/// `offset` (in numbers) of a block: the convolution's inputs of the last width - 1 tokens, oldest
/// first, then h.
void recurrence(const RecurrenceTensors& weights, const NodeStates& states, int64_t offset,
                Tensor& branches);

}  // namespace specdec
