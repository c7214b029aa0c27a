#include "core/transformer/random_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace specdec {
namespace {

/// Standard normal values by Box and Muller's method: the same on every platform, unlike
/// std::normal_distribution.
at::Tensor normal_values(int64_t count, std::mt19937_64& generator) {
  at::Tensor out = at::empty({count}, at::kDouble);
  auto* values = out.mutable_data_ptr<double>();
  const auto uniform = [&generator] {
    return (static_cast<double>(generator() >> 11) + 0.5) * 0x1.0p-53;
  };
  for (int64_t i = 0; i < count; ++i) {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    values[i] = radius * std::cos(2.0 * M_PI * uniform());
  }
  return out;
}

void add_experts(RandomTensors& random, const ExpertsPlan& plan, int64_t hidden_size,
                 ExpertsOf<Tensor>& experts) {
  if (plan.count == 0) {
    return;
  }
  experts.router = random.norm(plan.count * hidden_size).view({plan.count, hidden_size}) - 1.0;
  experts.router_norm = random.norm(hidden_size);
  experts.output_scale = random.norm(plan.count);
  for (int64_t i = 0; i < plan.count; ++i) {
    experts.gate_up.push_back(random.matrix(2 * plan.intermediate_size, hidden_size));
    experts.down.push_back(random.matrix(hidden_size, plan.intermediate_size));
  }
  experts.dense_post_norm = random.norm(hidden_size);
  experts.norm = random.norm(hidden_size);
  experts.post_norm = random.norm(hidden_size);
}

/// What Gemma 3n and 4 have beside attention and MLP.
void add_branches(RandomTensors& random, const LayerPlan& plan, int64_t hidden_size,
                  LayerTensors& layer) {
  if (plan.layer_scalar) {
    layer.scalar = random.norm(1).item<double>();
  }
  if (plan.per_layer_size > 0) {
    layer.per_layer.gate = random.matrix(plan.per_layer_size, hidden_size);
    layer.per_layer.projection = random.matrix(hidden_size, plan.per_layer_size);
    layer.per_layer.post_norm = random.norm(hidden_size);
  }
  if (plan.laurel_rank > 0) {
    layer.laurel.left = random.matrix(plan.laurel_rank, hidden_size);
    layer.laurel.right = random.matrix(hidden_size, plan.laurel_rank);
    layer.laurel.post_norm = random.norm(hidden_size);
  }
  if (const int64_t streams = plan.altup.streams; streams > 0) {
    const auto around_zero = [&](int64_t rows, int64_t columns) {
      return random.norm(rows * columns).view({rows, columns}) - 1.0;
    };
    layer.altup.router = around_zero(streams, hidden_size);
    layer.altup.router_norm = random.norm(hidden_size);
    layer.altup.predict = around_zero(streams * streams, streams);
    layer.altup.correct = around_zero(streams, streams);
    if (plan.altup.correct_scale) {
      layer.altup.output_scale = random.norm(hidden_size);
    }
  }
}

}  // namespace

/// Decays between some 0.5 and 0.99 a token, and all gates in use.
static RecurrenceTensors random_recurrence(RandomTensors& random, const LayerPlan& plan) {
  const int64_t channels = query_rows(plan);
  const auto around_zero = [&](int64_t count) { return random.norm(count) - 1.0; };
  const auto gate = [&] {
    return around_zero(channels * plan.head_dim).view({plan.heads, plan.head_dim, plan.head_dim});
  };
  RecurrenceTensors out;
  const int64_t width = plan.recurrence.convolution_width;
  out.convolution = random.norm(width * channels).view({width, channels}) / width;
  out.convolution_bias = around_zero(channels);
  out.input_gate = gate();
  out.input_gate_bias = around_zero(channels);
  out.decay_gate = gate();
  out.decay_gate_bias = around_zero(channels);
  out.decay = random.norm(channels).abs() * -0.5;
  return out;
}

RandomTensors::RandomTensors(const RandomWeightsOptions& options)
    : options_(options), generator_(options.seed) {}

Tensor RandomTensors::normal(at::IntArrayRef shape, double deviation, at::ScalarType dtype) {
  constexpr int64_t kPart = 1 << 20;  // a large matrix in float64 would not fit beside the model
  at::Tensor out = at::empty(shape, dtype);
  at::Tensor flat = out.view(-1);
  for (int64_t at = 0; at < flat.numel(); at += kPart) {
    at::Tensor part = flat.narrow(0, at, std::min(kPart, flat.numel() - at));
    if (at > 0 && options_.repeats) {
      part.copy_(flat.narrow(0, 0, part.numel()));
    } else {
      part.copy_(normal_values(part.numel(), generator_) * deviation);
    }
  }
  return out;
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
  layer.qkv = random.matrix(qkv_rows(plan), plan.joined_inputs ? 2 * hidden_size : hidden_size);
  layer.output = random.matrix(hidden_size, query_rows(plan));
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
    if (kv_projections(plan) > 0) {
      layer.k_norm = random.norm(plan.head_dim);
    }
  }
  if (is_recurrent(plan)) {
    layer.recurrence = random_recurrence(random, plan);
  }
  add_experts(random, plan.experts, hidden_size, layer.experts);
  add_branches(random, plan, hidden_size, layer);
  return layer;
}

}  // namespace specdec
