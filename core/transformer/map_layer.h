#pragma once
#include "core/transformer/weights.h"

namespace specdec {

/// A layer without its matrices; vectors are shared.
template <class To, class From>
LayerOf<To> vectors_of(const LayerOf<From>& layer) {
  LayerOf<To> out;
  out.attention_norm = layer.attention_norm;
  out.attention_post_norm = layer.attention_post_norm;
  out.mlp_norm = layer.mlp_norm;
  out.mlp_post_norm = layer.mlp_post_norm;
  out.q_norm = layer.q_norm;
  out.k_norm = layer.k_norm;
  out.qkv_bias = layer.qkv_bias;
  out.output_bias = layer.output_bias;
  out.gate_up_bias = layer.gate_up_bias;
  out.down_bias = layer.down_bias;
  out.scalar = layer.scalar;
  out.experts.router_norm = layer.experts.router_norm;
  out.experts.output_scale = layer.experts.output_scale;
  out.experts.dense_post_norm = layer.experts.dense_post_norm;
  out.experts.norm = layer.experts.norm;
  out.experts.post_norm = layer.experts.post_norm;
  out.per_layer.post_norm = layer.per_layer.post_norm;
  out.laurel.post_norm = layer.laurel.post_norm;
  out.recurrence = layer.recurrence;
  out.altup = layer.altup;
  return out;
}

/// A layer of to(matrix, bias) of each matrix that is there, called in the order of visit_matrices.
template <class To, class From, class F>
LayerOf<To> map_matrices(const LayerOf<From>& layer, const F& to) {
  const auto map = [&to](const From& matrix, const Tensor& bias = {}) {
    return matrix.defined() ? to(matrix, bias) : To{};
  };
  LayerOf<To> out = vectors_of<To>(layer);
  out.qkv = map(layer.qkv, layer.qkv_bias);
  out.output = map(layer.output, layer.output_bias);
  out.gate_up = map(layer.gate_up, layer.gate_up_bias);
  out.down = map(layer.down, layer.down_bias);
  out.experts.router = map(layer.experts.router);
  out.per_layer.gate = map(layer.per_layer.gate);
  out.per_layer.projection = map(layer.per_layer.projection);
  out.laurel.left = map(layer.laurel.left);
  out.laurel.right = map(layer.laurel.right);
  for (const From& matrix : layer.experts.gate_up) {
    out.experts.gate_up.push_back(map(matrix));
  }
  for (const From& matrix : layer.experts.down) {
    out.experts.down.push_back(map(matrix));
  }
  return out;
}

}  // namespace specdec
