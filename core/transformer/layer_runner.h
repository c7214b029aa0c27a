#pragma once
#include <memory>
#include <vector>

#include "core/forward.h"
#include "core/kernels/ops.h"
#include "core/transformer/layer_hook.h"
#include "core/transformer/residual_stream.h"
#include "core/transformer/rope_table.h"
#include "core/transformer/weights.h"
#include "core/transformer/workspace.h"

namespace specdec {

/// Evaluates the layers of a forward as their plan says. Borrows ops and weights.
class LayerRunner {
 public:
  LayerRunner(Ops& ops, const TransformerWeights& weights);

  /// Makes rotary tables for positions below `length`.
  void reserve_positions(int64_t length);
  /// The rotary tables that forwards read now: where they lie changes when they grow.
  const std::vector<RopeTable>& rotary_tables() const { return ropes_; }
  /// Called before a forward of tokens begins; see ResidualStream::look_up.
  void look_up(const Tensor& tokens, Activations& a) { stream_->look_up(tokens, a); }
  /// Begins a forward: a.residual holds the embeddings; see ResidualStream::begin.
  void begin(Activations& a) { stream_->begin(a); }
  /// a.residual becomes the layer's output, keys and values go into the view's slots. `by_library`:
  /// q, k and v, outputs and MLPs are multiplied by Ops::library_linear.
  void run(size_t layer, const KvView& view, const ForwardInputs& inputs, Activations& a,
           bool by_library = false);
  /// Evaluates a layer within hooks, of which there is at least one. Throws Error where they
  /// replace a layer whose keys and values others read.
  void run(const LayerHooks& hooks, size_t layer, const KvView& view, const TokenBatch& batch,
           Activations& a, bool by_library);
  /// Keys and values of nodes that nobody asks for more: `projected` [n, keys and values of the
  /// layer] go into the view's slots.
  void write_keys(size_t layer, const Tensor& projected, const KvView& view);
  /// a.residual becomes what the final norm reads.
  void leave(Activations& a) { stream_->leave(a); }

 private:
  void add_layer(const LayerPlan& plan, const LayerWeights& weights);
  const Tensor& attention_input(const LayerPlan& plan, const ForwardInputs& inputs,
                                const Tensor& stream, Activations& a) const;
  void multiply(const Linear& weight, const Tensor& input, Tensor& out, bool by_library) const;
  void run_mlp(size_t layer, Activations& a, bool by_library) const;
  void add_experts(size_t layer, Activations& a) const;
  double eps() const { return weights_.config.rms_norm_eps; }

  Ops& ops_;
  const TransformerWeights& weights_;
  std::unique_ptr<ResidualStream> stream_;
  std::vector<RopeTable> ropes_;
  std::vector<size_t> rope_of_layer_;
  std::vector<QkvOptions> qkv_options_;
};

/// An input as ops take it, whatever a caller made: of the options of `like`, contiguous.
Tensor plain_input(const Tensor& input, const Tensor& like);

}  // namespace specdec
