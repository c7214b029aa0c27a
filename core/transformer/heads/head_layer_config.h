#pragma once
#include <cstdint>

#include "core/formats/json_keys.h"
#include "core/transformer/plan.h"

namespace specdec {

// What the configs of heads of several kinds say of their layers. All throw WeightsError naming the
// key.

/// hidden_activation or hidden_act: silu or gelu_pytorch_tanh.
Activation read_head_activation(const JsonKeys& keys, Activation usual);

/// Refuses what no head's layers have: biases, experts, per-layer inputs, a head's partial
/// rotation.
void refuse_layer_parts(const JsonKeys& keys);

/// Sizes of Gemma 4's layers that see everything, which are their own, and whether keys are the
/// values; beside what read_head_layer_sizes read.
void read_gemma4_sizes(const JsonKeys& keys, LayerPlan& plan);
/// Gemma 4's rotation: the first pairs of a head are turned, at the frequencies of a whole one.
void read_proportional_rope(const JsonKeys& keys, LayerPlan& plan);
/// A layer of Gemma 4 that sees everything, as DeepSpec's block drafters have it.
void read_gemma4_head_layer(const JsonKeys& keys, int64_t hidden_size, LayerPlan& plan);

}  // namespace specdec
