#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace specdec {

using at::Tensor;

/// States of a new node in a forward over recurrent layers, by their numbers.
struct NodeState {
  int32_t parent;  ///< node of this forward, an earlier one; -1 = none of them
  int32_t before;  ///< state that the node starts from; -1 = it begins a text
  int32_t after;   ///< state that it leaves behind, no other node's and none that one starts from
};

/// States of the recurrent layers that a forward's new nodes start from and leave behind, each
/// a row of numbers in which every layer has its place. On the model's device; owned by the cache,
/// valid until its next change, and kept between forwards.
struct NodeStates {
  Tensor memory;  ///< [states, numbers] of the activations' dtype
  Tensor nodes;   ///< [node_capacity, 3] int32: a NodeState of each of the forward's nodes
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
/// number `offset` of a state: the convolution's inputs of the last width - 1 tokens, oldest
/// first, then h.
void recurrence(const RecurrenceTensors& weights, const NodeStates& states, int64_t offset,
                Tensor& branches);

}  // namespace specdec
