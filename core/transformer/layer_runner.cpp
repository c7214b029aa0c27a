#include "core/transformer/layer_runner.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "core/error.h"

namespace specdec {

Tensor plain_input(const Tensor& input, const Tensor& like) {
  return input.to(like.options()).contiguous();
}

LayerRunner::LayerRunner(Ops& ops, const TransformerWeights& weights)
    : ops_(ops), weights_(weights), stream_(make_residual_stream(ops, weights)) {
  for (size_t layer = 0; layer < weights_.plan.size(); ++layer) {
    add_layer(weights_.plan[layer], weights_.layers[layer]);
  }
}

void LayerRunner::add_layer(const LayerPlan& plan, const LayerWeights& weights) {
  const auto options = at::TensorOptions(weights_.compute_dtype()).device(weights_.place.device);
  const auto serves = [&](const RopeTable& table) {
    return table.serves(plan.rope, plan.head_dim);
  };
  auto table = std::find_if(ropes_.begin(), ropes_.end(), serves);
  if (table == ropes_.end()) {
    table = ropes_.emplace(ropes_.end(), plan.rope, plan.head_dim, options);
  }
  rope_of_layer_.push_back(static_cast<size_t>(table - ropes_.begin()));
  QkvOptions qkv;
  qkv.heads = plan.heads;
  qkv.eps = eps();
  qkv.q_scale = weights.q_norm;
  qkv.k_scale = weights.k_norm;
  qkv.kv_projections = kv_projections(plan);
  qkv.value_norm = plan.value_norm;
  qkv_options_.push_back(qkv);
}

void LayerRunner::reserve_positions(int64_t length) {
  for (size_t i = 0; i < ropes_.size(); ++i) {
    if (!ropes_[i].reserve(length)) {
      continue;
    }
    for (size_t layer = 0; layer < qkv_options_.size(); ++layer) {
      if (rope_of_layer_[layer] == i) {
        qkv_options_[layer].cos = ropes_[i].cos();
        qkv_options_[layer].sin = ropes_[i].sin();
      }
    }
  }
}

void LayerRunner::run(size_t layer, const KvView& view, const ForwardInputs& inputs, Activations& a,
                      bool by_library) {
  const LayerPlan& plan = weights_.plan[layer];
  const LayerWeights& w = weights_.layers[layer];
  const HeldLayer held(weights_.source.get(), w.in_source);
  LayerActivations& own = a.layers[layer];
  const Tensor& stream = stream_->enter(layer, a);
  multiply(w.qkv, attention_input(plan, inputs, stream, a), own.qkv, by_library);
  if (is_recurrent(plan)) {
    SPECDEC_CHECK(view.states != nullptr, "layer {}: the cache keeps no states", layer);
    ops_.recurrence(w.recurrence, *view.states, view.state_offset, own.qkv);
    ops_.gated_activation(own.qkv, plan.activation, own.mixed_flat);
  } else {
    ops_.qkv_to_cache(own.qkv, qkv_options_[layer], view, own.queries);
    ops_.paged_attention(own.queries, view,
                         {plan.query_scale, plan.soft_cap, inputs.attention_bias}, own.mixed);
  }
  multiply(w.output, own.mixed_flat, a.branch, by_library);
  stream_->add_attention(layer, a);
  run_mlp(layer, a, by_library);
  if (plan.experts.count > 0) {
    add_experts(layer, a);
  }
  stream_->add_mlp(layer, a);
}

void LayerRunner::run(const LayerHooks& hooks, size_t layer, const KvView& view,
                      const TokenBatch& batch, Activations& a, bool by_library) {
  const auto index = static_cast<int64_t>(layer);
  bool is_replaced = true;
  const std::function<void()> evaluate = [&] {
    stream_->accept(a);
    run(layer, view, batch.inputs, a, by_library);
    is_replaced = false;
  };
  run_hooks(hooks, {.layer = index,
                    .batch = batch,
                    .positions = view.tables->positions.narrow(0, 0, a.residual.size(0)),
                    .residual = a.residual,
                    .evaluate = evaluate});
  stream_->accept(a);
  for (size_t other = layer + 1; is_replaced && other < weights_.plan.size(); ++other) {
    if (weights_.plan[other].kv_source == index) {
      throw Error(
          fmt::format("a hook replaces layer {}, whose keys and values layer {} reads; "
                      "call evaluate(), or replace a layer that no other one reads",
                      layer, other));
    }
  }
}

void LayerRunner::write_keys(size_t layer, const Tensor& projected, const KvView& view) {
  QkvOptions options = qkv_options_[layer];
  options.heads = 0;
  Tensor no_queries = at::empty({projected.size(0), 0, view.head_dim()}, projected.options());
  ops_.qkv_to_cache(projected, options, view, no_queries);
}

const Tensor& LayerRunner::attention_input(const LayerPlan& plan, const ForwardInputs& inputs,
                                           const Tensor& stream, Activations& a) const {
  if (!plan.joined_inputs) {
    return stream;
  }
  ops_.concat(plain_input(inputs.attention_inputs, stream), stream, a.joined);
  return a.joined;
}

void LayerRunner::multiply(const Linear& weight, const Tensor& input, Tensor& out,
                           bool by_library) const {
  if (by_library) {
    ops_.library_linear(weight, input, out);
  } else {
    ops_.linear(weight, input, out);
  }
}

/// a.branch = the dense MLP of a.normed.
void LayerRunner::run_mlp(size_t layer, Activations& a, bool by_library) const {
  const LayerPlan& plan = weights_.plan[layer];
  const LayerWeights& w = weights_.layers[layer];
  LayerActivations& own = a.layers[layer];
  multiply(w.gate_up, a.normed, own.gate_up, by_library);
  if (plan.sparsity_cut) {
    ops_.cut_gate(own.gate_up, *plan.sparsity_cut);
  }
  ops_.gated_activation(own.gate_up, plan.activation, own.gated);
  multiply(w.down, own.gated, a.branch, by_library);
}

/// a.branch = its norm + the norm of the experts' sum; all read the same residual stream.
void LayerRunner::add_experts(size_t layer, Activations& a) const {
  const ExpertsOf<Linear>& w = weights_.layers[layer].experts;
  FamilyActivations& f = a.family;
  ops_.rms_norm(a.residual, w.router_norm, eps(), a.normed);
  ops_.linear(w.router, a.normed, f.router_logits);
  ops_.route(f.router_logits, w.output_scale, f.routes);
  ops_.rms_norm(a.residual, w.norm, eps(), a.normed);
  ops_.apply_experts({w.gate_up, w.down, weights_.plan[layer].activation}, a.normed, f.routes,
                     f.experts, f.mixture);
  ops_.rms_norm(a.branch, w.dense_post_norm, eps(), a.normed);
  ops_.add_rms_norm(a.normed, f.mixture, w.post_norm, eps());
  std::swap(a.normed, a.branch);
}

}  // namespace specdec
