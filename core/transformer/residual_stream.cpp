#include "core/transformer/residual_stream.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

class PlainStream : public ResidualStream {
 public:
  PlainStream(Ops& ops, const TransformerWeights& weights) : ops_(ops), weights_(weights) {}

  void look_up(const Tensor& tokens, Activations& a) override {
    if (!weights_.per_layer_table.defined()) {
      return;
    }
    SPECDEC_CHECK(tokens.defined(),
                  "forward: a model with per-layer inputs needs tokens, not their embeddings");
    const auto size = static_cast<double>(a.family.per_layer.size(2));
    ops_.look_up(weights_.per_layer_table, tokens, std::sqrt(size), a.family.token);
  }

  void begin(Activations& a) override {
    normed_ = nullptr;
    if (weights_.per_layer_table.defined()) {
      make_per_layer_inputs(a);
    }
  }

  const Tensor& enter(size_t layer, Activations& a) override {
    const Tensor& scale = weights_.layers[layer].attention_norm;
    const bool is_normed = std::exchange(normed_, nullptr) == &a && normed_for_ == layer;
    if (!scale.defined()) {
      return a.residual;
    }
    if (is_normed) {
      return a.normed;
    }
    ops_.rms_norm(a.residual, scale, eps(), a.normed);
    return a.normed;
  }

  void add_attention(size_t layer, Activations& a) override {
    const LayerWeights& w = weights_.layers[layer];
    ops_.add_and_norm(a.residual, a.branch, w.attention_post_norm, w.mlp_norm, eps(), a.normed);
  }

  void add_mlp(size_t layer, Activations& a) override {
    const LayerWeights& w = weights_.layers[layer];
    const bool is_output = !w.per_layer.gate.defined() && w.scalar == 1.0;
    if (const size_t next = layer + 1; is_output && next < weights_.layers.size() &&
                                       weights_.layers[next].attention_norm.defined()) {
      ops_.add_and_norm(a.residual, a.branch, w.mlp_post_norm, weights_.layers[next].attention_norm,
                        eps(), a.normed);
      normed_ = &a;
      normed_for_ = next;
      return;
    }
    add_branch(a, w.mlp_post_norm);
    if (w.per_layer.gate.defined()) {
      per_layer_branch(layer, a.residual, a);
      ops_.add_rms_norm(a.residual, a.branch, w.per_layer.post_norm, eps());
    }
    if (w.scalar != 1.0) {
      ops_.scale(a.residual, w.scalar);
    }
  }

  void accept(Activations& /*a*/) override { normed_ = nullptr; }
  void leave(Activations& /*a*/) override {}

 protected:
  double eps() const { return weights_.config.rms_norm_eps; }

  void add_branch(Activations& a, const Tensor& post_norm) const {
    if (post_norm.defined()) {
      ops_.add_rms_norm(a.residual, a.branch, post_norm, eps());
    } else {
      ops_.add(a.residual, a.branch);
    }
  }

  /// a.branch = the layer's own input of each token, gated by `stream`, before its norm.
  void per_layer_branch(size_t layer, const Tensor& stream, Activations& a) const {
    const PerLayerOf<Linear>& w = weights_.layers[layer].per_layer;
    FamilyActivations& f = a.family;
    ops_.linear(w.gate, stream, f.gate);
    const LayerPlan& plan = weights_.plan[layer];
    ops_.concat(f.gate, f.per_layer.select(0, plan.per_layer_index), f.gate_and_input);
    ops_.gated_activation(f.gate_and_input, plan.activation, f.gated_input);
    ops_.linear(w.projection, f.gated_input, a.branch);
  }

  void make_per_layer_inputs(Activations& a) const {
    FamilyActivations& f = a.family;
    ops_.linear(weights_.per_layer_projection, a.residual, f.context);
    ops_.per_layer_inputs(
        f.context, f.token,
        {.norm = weights_.per_layer_norm,
         .eps = eps(),
         .context_scale = 1.0 / std::sqrt(static_cast<double>(weights_.config.hidden_size))},
        f.per_layer);
  }

  Ops& ops_;
  const TransformerWeights& weights_;

 private:
  /// Activations whose `normed` is what the attention of layer normed_for_ reads; nullptr = none.
  const Activations* normed_ = nullptr;
  size_t normed_for_ = 0;
};

/// AltUp's streams around layers with Laurel branches, as Gemma 3n has them.
class AltUpStream final : public PlainStream {
 public:
  AltUpStream(Ops& ops, const TransformerWeights& weights)
      : PlainStream(ops, weights), altup_(weights.plan.front().altup) {}

  void begin(Activations& a) override {
    PlainStream::begin(a);
    Tensor first = stream(a, 0);
    ops_.copy(a.residual, first);
    for (int64_t i = 1; i < altup_.streams; ++i) {
      Tensor other = stream(a, i);
      ops_.linear(weights_.altup_projections[static_cast<size_t>(i - 1)], first, other);
      ops_.match_rms(first, other);
    }
    if (altup_.active != 0) {
      ops_.copy(stream(a, altup_.active), a.residual);
    }
  }

  const Tensor& enter(size_t layer, Activations& a) override {
    const LayerWeights& w = weights_.layers[layer];
    FamilyActivations& f = a.family;
    route(w, stream(a, altup_.active), a);
    ops_.altup_predict(f.streams, f.stream_routes, w.altup.predict, f.predictions);
    ops_.copy(f.predictions.select(0, altup_.active), a.residual);
    const Tensor& normed = PlainStream::enter(layer, a);
    ops_.linear(w.laurel.left, normed, f.low_rank);
    ops_.linear(w.laurel.right, f.low_rank, a.branch);
    ops_.copy(normed, f.laurel);
    ops_.add_rms_norm(f.laurel, a.branch, w.laurel.post_norm, eps());
    return normed;
  }

  void add_attention(size_t layer, Activations& a) override {
    const LayerWeights& w = weights_.layers[layer];
    add_branch(a, w.attention_post_norm);
    ops_.add(a.residual, a.family.laurel);
    ops_.scale(a.residual, M_SQRT1_2);
    ops_.rms_norm(a.residual, w.mlp_norm, eps(), a.normed);
  }

  void add_mlp(size_t layer, Activations& a) override {
    const LayerWeights& w = weights_.layers[layer];
    FamilyActivations& f = a.family;
    add_branch(a, w.mlp_post_norm);
    route(w, a.residual, a);
    ops_.altup_correct(a.residual, f.stream_routes, w.altup.correct, altup_.active, f.predictions);
    std::swap(f.streams, f.predictions);
    if (w.per_layer.gate.defined()) {
      add_per_layer(layer, a);
    }
    ops_.copy(stream(a, altup_.active), a.residual);
  }

  void accept(Activations& a) override {
    Tensor active = stream(a, altup_.active);
    ops_.copy(a.residual, active);
  }

  void leave(Activations& a) override {
    const Tensor first = stream(a, 0);
    FamilyActivations& f = a.family;
    Tensor same = f.predictions.select(0, 0);
    ops_.copy(first, same);
    for (int64_t i = 1; i < altup_.streams; ++i) {
      Tensor other = f.predictions.select(0, i);
      ops_.linear(weights_.altup_unembeddings[static_cast<size_t>(i - 1)], stream(a, i), other);
      ops_.match_rms(first, other);
    }
    ops_.mean_stream(f.predictions, a.residual);
  }

 private:
  /// Adds the per-layer input to all streams but the first one, whichever is active.
  void add_per_layer(size_t layer, Activations& a) {
    const LayerWeights& w = weights_.layers[layer];
    const Tensor corrected = stream(a, altup_.active);
    if (w.altup.output_scale.defined()) {
      ops_.multiply_rows(corrected, w.altup.output_scale, a.normed);
      per_layer_branch(layer, a.normed, a);
    } else {
      per_layer_branch(layer, corrected, a);
    }
    ops_.rms_norm(a.branch, w.per_layer.post_norm, eps(), a.normed);
    for (int64_t i = 1; i < altup_.streams; ++i) {
      Tensor other = stream(a, i);
      ops_.add(other, a.normed);
    }
  }

  static Tensor stream(const Activations& a, int64_t index) {
    return a.family.streams.select(0, index);
  }

  void route(const LayerWeights& w, const Tensor& input, Activations& a) const {
    ops_.altup_route(input, {.weight = w.altup.router, .norm = w.altup.router_norm, .eps = eps()},
                     a.family.stream_routes);
  }

  AltUpConfig altup_;
};

}  // namespace

std::unique_ptr<ResidualStream> make_residual_stream(Ops& ops, const TransformerWeights& weights) {
  if (weights.plan.front().altup.streams > 0) {
    return std::make_unique<AltUpStream>(ops, weights);
  }
  return std::make_unique<PlainStream>(ops, weights);
}

}  // namespace specdec
