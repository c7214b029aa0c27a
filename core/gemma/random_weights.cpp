#include "core/gemma/random_weights.h"

#include <ATen/ATen.h>

#include <cmath>
#include <random>

#include "core/error.h"

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

std::shared_ptr<GemmaWeights> random_gemma(const GemmaConfig& config,
                                           const RandomGemmaOptions& options) {
  auto weights = std::make_shared<GemmaWeights>();
  weights->config = config;
  weights->plan = make_layer_plan(config);
  const at::ScalarType dtype = options.dtype;
  std::mt19937_64 generator(options.seed);
  const auto normal = [&](at::IntArrayRef shape, double deviation, at::ScalarType type) {
    return (normal_values(shape, generator) * deviation).to(type);
  };
  const int64_t hidden = config.hidden_size;
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return normal({rows, columns}, 1.0 / std::sqrt(static_cast<double>(columns)), dtype);
  };
  weights->embedding = matrix(config.vocab_size, hidden);
  weights->embedding_scale = embedding_scale(config, dtype);
  const at::ScalarType compute = weights->compute_dtype();
  const auto norm = [&](int64_t size) {
    return normal({size}, options.norm_deviation, compute) + 1.0;
  };
  weights->head =
      config.tie_word_embeddings ? weights->embedding : matrix(config.vocab_size, hidden);
  for (const LayerPlan& plan : weights->plan) {
    GemmaLayerWeights layer;
    const int64_t q_rows = plan.heads * plan.head_dim;
    layer.qkv = matrix(q_rows + 2 * plan.kv_heads * plan.head_dim, hidden);
    layer.output = matrix(hidden, q_rows);
    layer.gate_up = matrix(2 * plan.intermediate_size, hidden);
    layer.down = matrix(hidden, plan.intermediate_size);
    layer.attention_norm = norm(hidden);
    layer.mlp_norm = norm(hidden);
    if (plan.post_norms) {
      layer.attention_post_norm = norm(hidden);
      layer.mlp_post_norm = norm(hidden);
    }
    if (plan.qk_norm) {
      layer.q_norm = norm(plan.head_dim);
      layer.k_norm = norm(plan.head_dim);
    }
    weights->layers.push_back(std::move(layer));
  }
  weights->final_norm = norm(hidden);
  weights->fingerprint = fmt::format("random-{}", options.seed);
  return weights;
}

}  // namespace specdec
