#include "core/transformer/reference.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "core/transformer/family_reference.h"
#include "core/transformer/rope_table.h"

namespace specdec {
namespace {

/// cos and sin of the rotation angles at positions first..first + length - 1: each [length,
/// head_dim / 2].
std::pair<at::Tensor, at::Tensor> rotation(const LayerPlan& plan, int64_t first, int64_t length,
                                           const at::TensorOptions& options) {
  const auto frequency = rope_frequencies(plan.rope, plan.head_dim, options);
  const auto position = at::arange(first, first + length, options);
  const auto angle = position.unsqueeze(1) * frequency.unsqueeze(0);
  return {angle.cos(), angle.sin()};
}

/// x: [rows, heads, T, head_dim]
at::Tensor rotate(const at::Tensor& x, const std::pair<at::Tensor, at::Tensor>& angles) {
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * angles.first - halves[1] * angles.second,
                  halves[1] * angles.first + halves[0] * angles.second},
                 -1);
}

/// [T - first, T] true where the query of a column from `first` on (row of the mask), which is
/// `step` positions further on, must not see a key of step 0.
at::Tensor hidden_keys(const LayerReference& layer, const at::Tensor& keys, int64_t first,
                       int64_t step) {
  const auto column = at::arange(keys.size(2), keys.options().dtype(at::kLong));
  const auto distance = column.slice(0, first).unsqueeze(1) - column.unsqueeze(0);
  auto hidden = layer.bidirectional ? at::zeros_like(distance, at::kBool) : distance < 0;
  if (layer.plan.window > 0) {
    hidden = hidden.logical_or((distance + step).abs() >= layer.plan.window);
  }
  return hidden;
}

class LayerForward {
 public:
  explicit LayerForward(const LayerReference& layer)
      : layer_(layer), plan_(layer.plan), weights_(layer.weights) {}

  at::Tensor run(const at::Tensor& x, const at::Tensor& attention_inputs,
                 UnrolledKeys* unrolled) const {
    auto input = norm(x, weights_.attention_norm);
    if (plan_.joined_inputs) {
      input = at::cat({attention_inputs, input}, -1);
    }
    UnrolledKeys first_step;
    const auto mixed = attention(input, unrolled == nullptr ? first_step : *unrolled);
    const auto wanted = x.narrow(1, x.size(1) - mixed.size(1), mixed.size(1));
    const auto middle = wanted + norm(mixed, weights_.attention_post_norm);
    const auto gate_up =
        project(norm(middle, weights_.mlp_norm), weights_.gate_up, weights_.gate_up_bias)
            .chunk(2, -1);
    const auto gate =
        plan_.activation == Activation::kSilu ? at::silu(gate_up[0]) : at::gelu(gate_up[0], "tanh");
    const auto out = middle + norm(project(gate * gate_up[1], weights_.down, weights_.down_bias),
                                   weights_.mlp_post_norm);
    return weights_.scalar == 1.0 ? out : out * weights_.scalar;
  }

 private:
  at::Tensor project(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const {
    const auto product =
        at::linear(x.to(layer_.matmul_dtype), weight.to(layer_.matmul_dtype)).to(layer_.dtype);
    return bias.defined() ? product + bias : product;
  }

  at::Tensor norm(const at::Tensor& x, const at::Tensor& scale) const {
    return reference_norm(x, scale, layer_.eps);
  }

  /// [rows, T, count * head_dim] -> [rows, count, T, head_dim]
  at::Tensor heads(const at::Tensor& part, int64_t count, const at::Tensor& scale) const {
    const auto split = part.reshape({part.size(0), part.size(1), count, plan_.head_dim});
    return norm(split.transpose(1, 2), scale);
  }

  /// [rows, kv_heads, T, head_dim]
  at::Tensor values(const at::Tensor& projected) const {
    const auto split = heads(projected, plan_.kv_heads, {});
    return plan_.value_norm
               ? split * at::rsqrt(split.square().mean(-1, /*keepdim=*/true) + layer_.eps)
               : split;
  }

  at::Tensor capped(const at::Tensor& scores) const {
    const auto scaled = scores * plan_.query_scale;
    return plan_.soft_cap > 0.0 ? plan_.soft_cap * at::tanh(scaled / plan_.soft_cap) : scaled;
  }

  /// `width` outputs of the fused q, k and v, from `begin` on.
  at::Tensor part(const at::Tensor& x, int64_t begin, int64_t width) const {
    const at::Tensor& bias = weights_.qkv_bias;
    return project(x, weights_.qkv.narrow(0, begin, width),
                   bias.defined() ? bias.narrow(0, begin, width) : bias);
  }

  /// Attention of the columns from past.first on.
  at::Tensor attention(const at::Tensor& x, UnrolledKeys& past) const {
    const int64_t q_width = query_rows(plan_);
    const int64_t kv_width = kv_rows(plan_);
    const auto step = static_cast<int64_t>(past.keys.size());
    const int64_t first = step == 0 ? past.first : 0;  // the later steps have no columns before it
    const int64_t length = x.size(1) - first;
    const int64_t projections = kv_projections(plan_);  // K = V has one
    const auto kv = part(x, q_width, projections * kv_width).chunk(projections, -1);
    const auto angles = [&](int64_t from, int64_t count) {
      return rotation(plan_, past.first - first + from + step, count, x.options());
    };
    past.keys.push_back(
        rotate(heads(kv[0], plan_.kv_heads, weights_.k_norm), angles(0, x.size(1))));
    past.values.push_back(values(kv.back()));
    const auto queries =
        heads(part(x.narrow(1, first, length), 0, q_width), plan_.heads, weights_.q_norm);
    const auto mixed = mix(rotate(queries, angles(first, length)), past,
                           hidden_keys(layer_, past.keys[0], past.first, step));
    return project(mixed.transpose(1, 2).reshape({x.size(0), length, q_width}), weights_.output,
                   weights_.output_bias);
  }

  /// Attention over the keys of step 0 and, on the diagonal, over those of the later steps.
  at::Tensor mix(const at::Tensor& q, const UnrolledKeys& past, const at::Tensor& hidden) const {
    const int64_t group = plan_.heads / plan_.kv_heads;
    const auto widened = [&](const at::Tensor& x) { return x.repeat_interleave(group, 1); };
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    auto scores = capped(at::matmul(q, widened(past.keys[0]).transpose(-1, -2)));
    std::vector<at::Tensor> columns = {scores.masked_fill(hidden, kNever)};
    const size_t steps = past.keys.size();
    for (size_t i = 1; i < steps; ++i) {
      scores = capped((q * widened(past.keys[i])).sum(-1, /*keepdim=*/true));
      const bool near = plan_.window == 0 || static_cast<int64_t>(steps - 1 - i) < plan_.window;
      columns.push_back(near ? scores : at::full_like(scores, kNever));
    }
    const auto shares = at::softmax(at::cat(columns, -1), -1);
    const int64_t length = past.keys[0].size(2);
    auto mixed = at::matmul(shares.narrow(-1, 0, length), widened(past.values[0]));
    for (size_t i = 1; i < steps; ++i) {
      const auto share = shares.narrow(-1, length + static_cast<int64_t>(i) - 1, 1);
      mixed = mixed + share * widened(past.values[i]);
    }
    return mixed;
  }

  const LayerReference& layer_;
  const LayerPlan& plan_;
  const LayerTensors& weights_;
};

}  // namespace

Tensor reference_norm(const Tensor& x, const Tensor& scale, double eps) {
  return scale.defined() ? x * at::rsqrt(x.pow(2).mean(-1, /*keepdim=*/true) + eps) * scale : x;
}

Tensor reference_layer(const LayerReference& layer, const Tensor& residual,
                       const Tensor& attention_inputs, UnrolledKeys* unrolled) {
  return LayerForward(layer).run(residual, attention_inputs, unrolled);
}

Tensor reference_embedding(const TransformerTensors& weights, const Tensor& tokens) {
  return at::embedding(weights.embedding, tokens).to(weights.compute_dtype()) *
         weights.embedding_scale;
}

Tensor reference_head(const TransformerTensors& weights, const Tensor& hidden,
                      const Tensor& tokens) {
  const Tensor head = tokens.defined() ? weights.head.index_select(0, tokens) : weights.head;
  const Tensor logits = at::linear(hidden, head.to(weights.compute_dtype()));
  const double cap = weights.config.final_soft_cap;
  return cap > 0.0 ? cap * at::tanh(logits / cap) : logits;
}

ReferenceResult reference_forward(const TransformerTensors& weights, const Tensor& tokens,
                                  std::optional<at::ScalarType> matmul_dtype) {
  if (!std::all_of(weights.plan.begin(), weights.plan.end(), is_plain)) {
    return family_reference_forward(weights, tokens, matmul_dtype);
  }
  ReferenceResult result;
  const at::ScalarType dtype = weights.compute_dtype();
  auto x = reference_embedding(weights, tokens);
  for (size_t layer = 0; layer < weights.layers.size(); ++layer) {
    x = reference_layer({weights.plan[layer], weights.layers[layer], weights.config.rms_norm_eps,
                         weights.config.bidirectional, dtype, matmul_dtype.value_or(dtype)},
                        x);
    result.layers.push_back(x);
  }
  result.hidden_pre_norm = x;
  result.hidden = reference_norm(x, weights.final_norm, weights.config.rms_norm_eps);
  result.logits = reference_head(weights, result.hidden);
  return result;
}

}  // namespace specdec
