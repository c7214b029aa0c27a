#include "core/transformer/family_reference.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <utility>

#include "core/transformer/rope_table.h"

namespace specdec {
namespace {

/// x with the root mean square 1, without a scale.
Tensor unit_rms(const Tensor& x, double eps) {
  return x * at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + eps);
}

Tensor gelu_tanh(const Tensor& x) { return at::gelu(x, "tanh"); }

/// p with the root mean square of `like`.
Tensor matched(const Tensor& like, const Tensor& p) {
  const auto square = [](const Tensor& x) { return x.square().mean(-1, /*keepdim=*/true); };
  return p * square(like).sqrt() / square(p).clamp_min(1e-5).sqrt();
}

class FamilyForward {
 public:
  FamilyForward(const TransformerTensors& weights, at::ScalarType matmul_dtype)
      : weights_(weights),
        eps_(weights.config.rms_norm_eps),
        dtype_(weights.compute_dtype()),
        matmul_dtype_(matmul_dtype),
        keys_(weights.plan.size()) {}

  ReferenceResult run(const Tensor& tokens) {
    ReferenceResult result;
    Tensor x = reference_embedding(weights_, tokens);
    if (weights_.per_layer_table.defined()) {
      make_per_layer(tokens, x);
    }
    const int64_t streams = weights_.plan.front().altup.streams;
    if (streams > 0) {
      streams_.push_back(x);
      for (const Tensor& projection : weights_.altup_projections) {
        streams_.push_back(matched(x, project(x, projection)));
      }
    }
    for (size_t layer = 0; layer < weights_.layers.size(); ++layer) {
      x = streams > 0 ? altup_layer(layer) : plain_layer(layer, x);
      result.layers.push_back(x);
    }
    if (streams > 0) {
      x = merged();
    }
    result.hidden_pre_norm = x;
    result.hidden = reference_norm(x, weights_.final_norm, eps_);
    result.logits = reference_head(weights_, result.hidden);
    result.key_values = std::move(keys_);
    result.router_probs = std::move(router_probs_);
    return result;
  }

 private:
  Tensor project(const Tensor& x, const Tensor& matrix, const Tensor& bias = {}) const {
    const Tensor out = at::linear(x.to(matmul_dtype_), matrix.to(matmul_dtype_)).to(dtype_);
    return bias.defined() ? out + bias : out;
  }
  Tensor norm(const Tensor& x, const Tensor& scale) const { return reference_norm(x, scale, eps_); }

  /// per_layer_ [count, rows, T, size].
  void make_per_layer(const Tensor& tokens, const Tensor& embedding) {
    const int64_t size = weights_.plan.front().per_layer_size;
    const std::vector<int64_t> shape = {tokens.size(0), tokens.size(1),
                                        weights_.config.per_layer_count, size};
    Tensor rows = at::empty({tokens.numel(), weights_.config.per_layer_count * size}, dtype_);
    weights_.per_layer_table.look_up(tokens.flatten().to(at::kInt).cpu().contiguous(), 1.0, rows);
    const double root = std::sqrt(static_cast<double>(weights_.config.hidden_size));
    const Tensor context =
        norm((project(embedding, weights_.per_layer_projection) / root).view(shape),
             weights_.per_layer_norm);
    const Tensor token =
        rows.to(embedding.device()).view(shape) * std::sqrt(static_cast<double>(size));
    per_layer_ = ((context + token) * std::sqrt(0.5)).permute({2, 0, 1, 3});
  }

  /// [rows, T, count * head_dim] -> [rows, count, T, head_dim].
  static Tensor heads(const Tensor& part, int64_t count) {
    return part.unflatten(-1, {count, -1}).transpose(1, 2);
  }

  Tensor rotate(const Tensor& x, const LayerPlan& plan) const {
    const Tensor position = at::arange(x.size(2), x.options());
    const Tensor angle =
        at::outer(position, rope_frequencies(plan.rope, plan.head_dim, x.options()));
    const Tensor cos = at::cat({angle.cos(), angle.cos()}, -1);
    const Tensor sin = at::cat({angle.sin(), angle.sin()}, -1);
    const auto halves = x.chunk(2, -1);
    return x * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
  }

  /// Sets the layer's own keys and values, from what is projected after the queries.
  void set_keys(size_t layer, const Tensor& projected) {
    const LayerPlan& plan = weights_.plan[layer];
    const Tensor raw = heads(projected.narrow(-1, 0, kv_rows(plan)), plan.kv_heads);
    Tensor values = plan.values == ValueKind::kRawKeys
                        ? raw
                        : heads(projected.narrow(-1, kv_rows(plan), kv_rows(plan)), plan.kv_heads);
    if (plan.value_norm) {
      values = unit_rms(values, eps_);
    }
    keys_[layer] = {rotate(norm(raw, weights_.layers[layer].k_norm), plan), values};
  }

  /// True where the query of a row must not see the key of a column.
  static Tensor hidden_keys(const LayerPlan& plan, int64_t length,
                            const at::TensorOptions& options) {
    const Tensor place = at::arange(length, options.dtype(at::kLong));
    const Tensor back = place.unsqueeze(1) - place.unsqueeze(0);
    return plan.window > 0 ? (back < 0).logical_or(back >= plan.window) : back < 0;
  }

  Tensor attention(size_t layer, const Tensor& x) {
    const LayerPlan& plan = weights_.plan[layer];
    const LayerTensors& w = weights_.layers[layer];
    const Tensor projected = project(x, w.qkv, w.qkv_bias);
    const Tensor queries =
        rotate(norm(heads(projected.narrow(-1, 0, query_rows(plan)), plan.heads), w.q_norm), plan);
    if (plan.kv_source < 0) {
      set_keys(layer, projected.narrow(-1, query_rows(plan), qkv_rows(plan) - query_rows(plan)));
    }
    const auto& [keys, values] =
        keys_[plan.kv_source < 0 ? layer : static_cast<size_t>(plan.kv_source)];
    const int64_t group = plan.heads / plan.kv_heads;
    const Tensor scores =
        at::matmul(queries, keys.repeat_interleave(group, 1).transpose(-1, -2)) * plan.query_scale;
    const Tensor shares = scores
                              .masked_fill(hidden_keys(plan, x.size(1), x.options()),
                                           -std::numeric_limits<double>::infinity())
                              .softmax(-1);
    const Tensor mixed = at::matmul(shares, values.repeat_interleave(group, 1));
    return project(mixed.transpose(1, 2).flatten(2), w.output, w.output_bias);
  }

  /// Products of each block of channels with its matrix: x [rows, T, channels].
  static Tensor block_gate(const Tensor& x, const Tensor& blocks, const Tensor& bias) {
    const Tensor parts = x.unflatten(-1, {blocks.size(0), -1});
    return at::sigmoid(at::einsum("rtbi,bij->rtbj", {parts, blocks}).flatten(2) + bias);
  }

  /// Griffin's recurrent block (RecurrencePlan).
  Tensor recurrent_block(size_t layer, const Tensor& input) const {
    const LayerTensors& w = weights_.layers[layer];
    const RecurrenceTensors& r = w.recurrence;
    const auto branches = project(input, w.qkv, w.qkv_bias).chunk(2, -1);
    const int64_t width = r.convolution.size(0);
    const int64_t length = input.size(1);
    const Tensor padded = at::constant_pad_nd(branches[1], {0, 0, width - 1, 0});
    Tensor x = r.convolution_bias;
    for (int64_t step = 0; step < width; ++step) {
      x = x + padded.narrow(1, step, length) * r.convolution[step];
    }
    const Tensor log_a = r.decay * block_gate(x, r.decay_gate, r.decay_gate_bias);
    const Tensor gated = x * block_gate(x, r.input_gate, r.input_gate_bias);
    // expm1: the root's derivative stays finite where a gate is nearly closed.
    const auto inputs = (gated * (-at::expm1(2.0 * log_a)).sqrt()).unbind(1);
    const auto decays = log_a.exp().unbind(1);  // select's gradient would be as large as all of x
    std::vector<Tensor> states = {gated.select(1, 0)};
    for (size_t t = 1; t < inputs.size(); ++t) {
      states.push_back(at::addcmul(inputs[t], decays[t], states.back()));
    }
    return project(gelu_tanh(branches[0]) * at::stack(states, 1), w.output, w.output_bias);
  }

  Tensor mixed(size_t layer, const Tensor& x) {
    return is_recurrent(weights_.plan[layer]) ? recurrent_block(layer, x) : attention(layer, x);
  }

  Tensor dense(size_t layer, const Tensor& x) const {
    const LayerTensors& w = weights_.layers[layer];
    if (!weights_.plan[layer].mlp_bias) {
      return gated(x, w.gate_up, w.down, weights_.plan[layer].sparsity_cut);
    }
    const auto halves = project(x, w.gate_up, w.gate_up_bias).chunk(2, -1);
    return project(gelu_tanh(halves[0]) * halves[1], w.down, w.down_bias);
  }

  Tensor gated(const Tensor& x, const Tensor& gate_up, const Tensor& down,
               std::optional<double> cut = std::nullopt) const {
    const auto halves = project(x, gate_up).chunk(2, -1);
    Tensor gate = halves[0];
    if (cut) {
      const Tensor deviation = gate.std(-1, /*unbiased=*/false, /*keepdim=*/true);
      gate = at::relu(gate - (gate.mean(-1, /*keepdim=*/true) + *cut * deviation));
    }
    return project(gelu_tanh(gate) * halves[1], down);
  }

  /// The weighted sum of the experts that each token goes to, [rows, T, hidden].
  Tensor experts(size_t layer, const Tensor& residual) {
    const ExpertsPlan& plan = weights_.plan[layer].experts;
    const ExpertsOf<Tensor>& w = weights_.layers[layer].experts;
    const Tensor probs = at::linear(norm(residual, w.router_norm), w.router.to(dtype_)).softmax(-1);
    router_probs_.push_back(probs);
    const auto [chosen, index] = probs.flatten(0, 1).topk(plan.chosen, -1);
    const Tensor shares = chosen / chosen.sum(-1, /*keepdim=*/true);
    const Tensor input = norm(residual, w.norm).flatten(0, 1);
    Tensor sum = at::zeros_like(input);
    for (int64_t e = 0; e < plan.count; ++e) {
      const auto i = static_cast<size_t>(e);
      const Tensor pairs = index.flatten().eq(e).nonzero().flatten();
      const Tensor tokens = pairs.floor_divide(plan.chosen);
      const Tensor share = shares.flatten().index_select(0, pairs) * w.output_scale[e];
      const Tensor made = gated(input.index_select(0, tokens), w.gate_up[i], w.down[i]);
      sum = sum.index_add(0, tokens, share.unsqueeze(-1) * made);
    }
    return sum.view_as(residual);
  }

  Tensor mlp(size_t layer, const Tensor& residual) {
    const LayerPlan& plan = weights_.plan[layer];
    const LayerTensors& w = weights_.layers[layer];
    const Tensor out = dense(layer, norm(residual, w.mlp_norm));
    if (plan.experts.count == 0) {
      return out;
    }
    return norm(out, w.experts.dense_post_norm) +
           norm(experts(layer, residual), w.experts.post_norm);
  }

  /// What the layer's own input of each token adds, gated by x.
  Tensor per_layer_branch(size_t layer, const Tensor& x) const {
    const PerLayerOf<Tensor>& w = weights_.layers[layer].per_layer;
    const Tensor input = per_layer_[weights_.plan[layer].per_layer_index];
    return norm(project(gelu_tanh(project(x, w.gate)) * input, w.projection), w.post_norm);
  }

  Tensor plain_layer(size_t layer, Tensor x) {
    const LayerTensors& w = weights_.layers[layer];
    x = x + norm(mixed(layer, norm(x, w.attention_norm)), w.attention_post_norm);
    x = x + norm(mlp(layer, x), w.mlp_post_norm);
    if (w.per_layer.gate.defined()) {
      x = x + per_layer_branch(layer, x);
    }
    return x * w.scalar;
  }

  /// [rows, T, streams].
  Tensor stream_routes(const AltUpTensors& w, const Tensor& x) const {
    return at::tanh(at::linear(norm(x, w.router_norm), w.router));
  }

  Tensor altup_layer(size_t layer) {
    const LayerPlan& plan = weights_.plan[layer];
    const LayerTensors& w = weights_.layers[layer];
    const auto active = static_cast<size_t>(plan.altup.active);
    const Tensor all = at::stack(streams_, -2);  // [rows, T, streams, hidden]
    const Tensor shares = at::linear(stream_routes(w.altup, streams_[active]), w.altup.predict)
                              .unflatten(-1, {plan.altup.streams, plan.altup.streams});
    const Tensor predicted = all + at::matmul(shares, all);
    const Tensor x = predicted.select(-2, plan.altup.active);
    const Tensor normed = norm(x, w.attention_norm);
    const Tensor laurel =
        normed + norm(project(project(normed, w.laurel.left), w.laurel.right), w.laurel.post_norm);
    const Tensor attended = norm(attention(layer, normed), w.attention_post_norm);
    const Tensor middle = (x + attended + laurel) * std::sqrt(0.5);
    const Tensor made = middle + norm(mlp(layer, middle), w.mlp_post_norm);
    const Tensor steps = at::linear(stream_routes(w.altup, made), w.altup.correct) + 1.0;
    const Tensor corrected = predicted + steps.unsqueeze(-1) * (made - x).unsqueeze(-2);
    for (size_t i = 0; i < streams_.size(); ++i) {
      streams_[i] = corrected.select(-2, static_cast<int64_t>(i));
    }
    if (w.per_layer.gate.defined()) {
      const Tensor scaled = w.altup.output_scale.defined() ? streams_[active] * w.altup.output_scale
                                                           : streams_[active];
      const Tensor branch = per_layer_branch(layer, scaled);
      for (size_t i = 1; i < streams_.size(); ++i) {
        streams_[i] = streams_[i] + branch;
      }
    }
    return streams_[active];
  }

  Tensor merged() const {
    std::vector<Tensor> all = {streams_.front()};
    for (size_t i = 1; i < streams_.size(); ++i) {
      all.push_back(
          matched(streams_.front(), project(streams_[i], weights_.altup_unembeddings[i - 1])));
    }
    return at::stack(all).mean(0);
  }

  const TransformerTensors& weights_;
  double eps_;
  at::ScalarType dtype_;
  at::ScalarType matmul_dtype_;
  Tensor per_layer_;
  std::vector<std::pair<Tensor, Tensor>> keys_;  // [layers] own keys and values
  std::vector<Tensor> streams_;
  std::vector<Tensor> router_probs_;
};

}  // namespace

ReferenceResult family_reference_forward(const TransformerTensors& weights, const Tensor& tokens,
                                         std::optional<at::ScalarType> matmul_dtype) {
  return FamilyForward(weights, matmul_dtype.value_or(weights.compute_dtype())).run(tokens);
}

}  // namespace specdec
