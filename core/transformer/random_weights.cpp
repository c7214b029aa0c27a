#include "core/transformer/random_weights.h"

#include <ATen/ATen.h>

#include <cmath>
#include <random>

namespace specdec {
namespace {

/// Standard normal values by Box and Muller's method: the same on every platform, unlike
/// std::normal_distribution.
at::Tensor normal_values(at::IntArrayRef shape, std::mt19937_64& generator) {
  at::Tensor out = at::empty(shape, at::kDouble);
  auto* values = out.mutable_data_ptr<double>();
  const auto uniform = [&generator] {
    return (static_cast<double>(generator() >> 11) + 0.5) * 0x1.0p-53;
  };
  for (int64_t i = 0; i < out.numel(); ++i) {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    values[i] = radius * std::cos(2.0 * M_PI * uniform());
  }
  return out;
}

}  // namespace

RandomTensors::RandomTensors(const RandomWeightsOptions& options)
    : options_(options), generator_(options.seed) {}

Tensor RandomTensors::normal(at::IntArrayRef shape, double deviation, at::ScalarType dtype) {
  return (normal_values(shape, generator_) * deviation).to(dtype);
}

Tensor RandomTensors::matrix(int64_t rows, int64_t columns) {
  return normal({rows, columns}, 1.0 / std::sqrt(static_cast<double>(columns)), options_.dtype);
}

Tensor RandomTensors::norm(int64_t size) {
  const at::ScalarType compute = options_.dtype == at::kDouble ? at::kDouble : at::kFloat;
  return normal({size}, options_.norm_deviation, compute) + 1.0;
}

LayerTensors random_layer(RandomTensors& random, const LayerPlan& plan, int64_t hidden_size) {
  LayerTensors layer;
  const int64_t q_rows = plan.heads * plan.head_dim;
  layer.qkv = random.matrix(q_rows + 2 * plan.kv_heads * plan.head_dim,
                            plan.joined_inputs ? 2 * hidden_size : hidden_size);
  layer.output = random.matrix(hidden_size, q_rows);
  layer.gate_up = random.matrix(2 * plan.intermediate_size, hidden_size);
  layer.down = random.matrix(hidden_size, plan.intermediate_size);
  const auto bias = [&](bool present, const Tensor& matrix, Tensor& out) {
    if (present) {  // as a norm, but around 0
      out = random.norm(matrix.size(0)) - 1.0;
    }
  };
  bias(plan.qkv_bias, layer.qkv, layer.qkv_bias);
  bias(plan.output_bias, layer.output, layer.output_bias);
  bias(plan.mlp_bias, layer.gate_up, layer.gate_up_bias);
  bias(plan.mlp_bias, layer.down, layer.down_bias);
  layer.attention_norm = random.norm(hidden_size);
  layer.mlp_norm = random.norm(hidden_size);
  if (plan.post_norms) {
    layer.attention_post_norm = random.norm(hidden_size);
    layer.mlp_post_norm = random.norm(hidden_size);
  }
  if (plan.qk_norm) {
    layer.q_norm = random.norm(plan.head_dim);
    layer.k_norm = random.norm(plan.head_dim);
  }
  return layer;
}

}  // namespace specdec
