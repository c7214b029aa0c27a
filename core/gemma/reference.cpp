#include "core/gemma/reference.h"

#include <ATen/ATen.h>

#include <limits>

namespace specdec {
namespace {

at::Tensor rms_norm_reference(const at::Tensor& x, const at::Tensor& scale, double eps) {
  return x * at::rsqrt(x.pow(2).mean(-1, /*keepdim=*/true) + eps) * scale;
}

/// cos and sin of the rotation angles: each [T, head_dim / 2].
std::pair<at::Tensor, at::Tensor> rotation(const LayerPlan& plan, int64_t length,
                                           const at::TensorOptions& options) {
  const auto exponent = at::arange(0, plan.head_dim, 2, options) / plan.head_dim;
  const auto frequency = at::pow(plan.rope.theta, exponent).reciprocal() / plan.rope.factor;
  const auto angle = at::arange(length, options).unsqueeze(1) * frequency.unsqueeze(0);
  return {angle.cos(), angle.sin()};
}

/// x: [rows, heads, T, head_dim]
at::Tensor rotate(const at::Tensor& x, const std::pair<at::Tensor, at::Tensor>& angles) {
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * angles.first - halves[1] * angles.second,
                  halves[1] * angles.first + halves[0] * angles.second},
                 -1);
}

/// [T, T] true where a query (row) must not see a key (column).
at::Tensor hidden_keys(const LayerPlan& plan, bool bidirectional, const at::Tensor& like,
                       int64_t length) {
  const auto position = at::arange(length, like.options().dtype(at::kLong));
  const auto distance = position.unsqueeze(1) - position.unsqueeze(0);
  auto hidden = bidirectional ? at::zeros_like(distance, at::kBool) : distance < 0;
  if (plan.window > 0) {
    hidden = hidden.logical_or(distance.abs() >= plan.window);
  }
  return hidden;
}

class ReferenceLayer {
 public:
  ReferenceLayer(const GemmaWeights& model, size_t index, at::ScalarType matmul_dtype)
      : config_(model.config),
        plan_(model.plan[index]),
        weights_(model.layers[index]),
        dtype_(model.compute_dtype()),
        matmul_dtype_(matmul_dtype) {}

  at::Tensor forward(const at::Tensor& x) const {
    auto y = attention(rms_norm_reference(x, weights_.attention_norm, config_.rms_norm_eps));
    const auto middle = x + post(y, weights_.attention_post_norm);
    const auto n = rms_norm_reference(middle, weights_.mlp_norm, config_.rms_norm_eps);
    const auto gate_up = project(n, weights_.gate_up).chunk(2, -1);
    y = project(at::gelu(gate_up[0], "tanh") * gate_up[1], weights_.down);
    return middle + post(y, weights_.mlp_post_norm);
  }

 private:
  at::Tensor project(const at::Tensor& x, const at::Tensor& weight) const {
    return at::linear(x.to(matmul_dtype_), weight.to(matmul_dtype_)).to(dtype_);
  }

  at::Tensor post(const at::Tensor& y, const at::Tensor& scale) const {
    return scale.defined() ? rms_norm_reference(y, scale, config_.rms_norm_eps) : y;
  }

  at::Tensor attention(const at::Tensor& x) const {
    const int64_t rows = x.size(0);
    const int64_t length = x.size(1);
    const int64_t q_width = plan_.heads * plan_.head_dim;
    const int64_t kv_width = plan_.kv_heads * plan_.head_dim;
    const auto parts = project(x, weights_.qkv).split_with_sizes({q_width, kv_width, kv_width}, -1);
    const auto heads = [&](const at::Tensor& part, int64_t count, const at::Tensor& scale) {
      const auto split = part.reshape({rows, length, count, plan_.head_dim}).transpose(1, 2);
      return scale.defined() ? rms_norm_reference(split, scale, config_.rms_norm_eps) : split;
    };
    const auto angles = rotation(plan_, length, x.options());
    const auto q = rotate(heads(parts[0], plan_.heads, weights_.q_norm), angles);
    const int64_t group = plan_.heads / plan_.kv_heads;
    const auto k = rotate(heads(parts[1], plan_.kv_heads, weights_.k_norm), angles)
                       .repeat_interleave(group, 1);
    const auto v = heads(parts[2], plan_.kv_heads, {}).repeat_interleave(group, 1);
    auto scores = at::matmul(q, k.transpose(-1, -2)) * plan_.query_scale;
    if (plan_.soft_cap > 0.0) {
      scores = plan_.soft_cap * at::tanh(scores / plan_.soft_cap);
    }
    const auto hidden = hidden_keys(plan_, config_.bidirectional, x, length);
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    const auto mixed = at::matmul(at::softmax(scores, -1), v);
    return project(mixed.transpose(1, 2).reshape({rows, length, q_width}), weights_.output);
  }

  const GemmaConfig& config_;
  const LayerPlan& plan_;
  const GemmaLayerWeights& weights_;
  at::ScalarType dtype_;
  at::ScalarType matmul_dtype_;
};

}  // namespace

ReferenceResult reference_forward(const GemmaWeights& weights, const Tensor& tokens,
                                  std::optional<at::ScalarType> matmul_dtype) {
  ReferenceResult result;
  const at::ScalarType dtype = weights.compute_dtype();
  auto x = at::embedding(weights.embedding, tokens).to(dtype) * weights.embedding_scale;
  for (size_t layer = 0; layer < weights.layers.size(); ++layer) {
    x = ReferenceLayer(weights, layer, matmul_dtype.value_or(dtype)).forward(x);
    result.layers.push_back(x);
  }
  result.hidden_pre_norm = x;
  result.hidden = rms_norm_reference(x, weights.final_norm, weights.config.rms_norm_eps);
  result.logits = at::linear(result.hidden, weights.head.to(dtype));
  if (weights.config.final_soft_cap > 0.0) {
    const double cap = weights.config.final_soft_cap;
    result.logits = cap * at::tanh(result.logits / cap);
  }
  return result;
}

}  // namespace specdec
