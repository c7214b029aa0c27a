#include "core/transformer/heads/assistant_reference.h"

#include <ATen/ATen.h>

#include <limits>

#include "core/transformer/rope_table.h"

namespace specdec {
namespace {

class AssistantForward {
 public:
  AssistantForward(const AssistantTensors& head, const AssistantInputs& inputs)
      : head_(head),
        inputs_(inputs),
        eps_(head.weights.config.rms_norm_eps),
        dtype_(inputs.hidden.scalar_type()),
        matmul_dtype_(inputs.matmul_dtype.value_or(dtype_)) {}

  AssistantOutputs run() const {
    Tensor x = project(at::cat({inputs_.embeddings, inputs_.hidden}, -1), head_.pre_projection);
    for (size_t layer = 0; layer < head_.weights.layers.size(); ++layer) {
      x = assistant_layer(layer, x);
    }
    const Tensor states = reference_norm(x, head_.weights.final_norm, eps_);
    return {states, project(states, head_.post_projection)};
  }

 private:
  Tensor project(const Tensor& x, const Tensor& matrix) const {
    return at::linear(x.to(matmul_dtype_), matrix.to(matmul_dtype_)).to(dtype_);
  }

  /// x [rows, heads, T, head_dim], column t at position t + 1.
  static Tensor rotate_queries(const Tensor& x, const LayerPlan& plan) {
    const Tensor position = at::arange(1, x.size(2) + 1, x.options());
    const Tensor angle =
        at::outer(position, rope_frequencies(plan.rope, plan.head_dim, x.options()));
    const auto halves = x.chunk(2, -1);
    return at::cat({halves[0] * angle.cos() - halves[1] * angle.sin(),
                    halves[1] * angle.cos() + halves[0] * angle.sin()},
                   -1);
  }

  /// [T, T] true where the anchor of a row does not see the key of a column.
  static Tensor unseen(const LayerPlan& plan, const Tensor& queries) {
    const Tensor place = at::arange(queries.size(2), queries.options().dtype(at::kLong));
    const Tensor back = place.unsqueeze(1) - place.unsqueeze(0);
    return plan.window > 0 ? (back < 0).logical_or(back > plan.window) : back < 0;
  }

  Tensor attention(size_t layer, const Tensor& x) const {
    const LayerPlan& plan = head_.weights.plan[layer];
    const LayerTensors& w = head_.weights.layers[layer];
    const int64_t length = x.size(1);
    const Tensor split = project(x, w.qkv).unflatten(-1, {plan.heads, -1}).transpose(1, 2);
    const Tensor queries = rotate_queries(reference_norm(split, w.q_norm, eps_), plan);
    const auto& [keys, values] = inputs_.target.key_values[static_cast<size_t>(plan.kv_source)];
    const auto widened = [&](const Tensor& each) {
      return each.narrow(2, 0, length).repeat_interleave(plan.heads / plan.kv_heads, 1);
    };
    const Tensor scores = at::matmul(queries, widened(keys).transpose(-1, -2)) * plan.query_scale;
    const Tensor shares =
        scores.masked_fill(unseen(plan, queries), -std::numeric_limits<double>::infinity())
            .softmax(-1);
    return project(at::matmul(shares, widened(values)).transpose(1, 2).flatten(2), w.output);
  }

  Tensor gated(const Tensor& x, const LayerTensors& w) const {
    const auto halves = project(x, w.gate_up).chunk(2, -1);
    return project(at::gelu(halves[0], "tanh") * halves[1], w.down);
  }

  Tensor assistant_layer(size_t layer, Tensor x) const {
    const LayerTensors& w = head_.weights.layers[layer];
    const auto norm = [&](const Tensor& each, const Tensor& scale) {
      return reference_norm(each, scale, eps_);
    };
    x = x + norm(attention(layer, norm(x, w.attention_norm)), w.attention_post_norm);
    x = x + norm(gated(norm(x, w.mlp_norm), w), w.mlp_post_norm);
    return x * w.scalar;
  }

  const AssistantTensors& head_;
  const AssistantInputs& inputs_;
  double eps_;
  at::ScalarType dtype_;
  at::ScalarType matmul_dtype_;
};

}  // namespace

AssistantTensors unpack(const AssistantHead& head) {
  AssistantTensors out{.weights = unpack(head.weights),
                       .pre_projection = head.pre_projection.unpack(),
                       .post_projection = head.post_projection.unpack(),
                       .centroids = {},
                       .ordering = head.ordered.ordering,
                       .chosen = head.ordered.chosen,
                       .target_hidden = head.target_hidden};
  if (head.ordered.centroids.defined()) {
    out.centroids = head.ordered.centroids.unpack();
  }
  return out;
}

std::shared_ptr<AssistantHead> pack(const AssistantTensors& head) {
  auto out = std::make_shared<AssistantHead>();
  out->weights = *pack(head.weights);
  out->pre_projection = pack(head.pre_projection);
  out->post_projection = pack(head.post_projection);
  if (head.centroids.defined()) {
    out->ordered = {pack(head.centroids), head.ordering, head.chosen};
  }
  out->target_hidden = head.target_hidden;
  return out;
}

AssistantOutputs assistant_reference(const AssistantTensors& head, const AssistantInputs& inputs) {
  return AssistantForward(head, inputs).run();
}

}  // namespace specdec
