#pragma once
#include <memory>

#include "core/kernels/ops.h"
#include "core/transformer/weights.h"
#include "core/transformer/workspace.h"

namespace specdec {

/// How what layers compute is carried from one to the next: by plain addition, with layer scalars
/// and per-layer inputs (Gemma 4), or as several streams with a low-rank branch (Gemma 3n). All but
/// attention and MLP themselves.
class ResidualStream {
 public:
  virtual ~ResidualStream() = default;

  /// Reads from the host what a forward needs of tables that lie there. `tokens` [n] int32 is
  /// undefined where embeddings were given, which models with per-layer inputs refuse.
  virtual void look_up(const Tensor& tokens, Activations& a) = 0;
  /// Begins a forward after look_up: a.residual holds the embeddings, and is then what the first
  /// layer reads (of AltUp: the active stream).
  virtual void begin(Activations& a) = 0;
  /// What attention reads: the stream, normed where the layer has such a norm.
  virtual const Tensor& enter(size_t layer, Activations& a) = 0;
  /// Adds a.branch, attention's output; a.residual is then what an MLP's norm reads, and a.normed
  /// what that of the dense one wrote.
  virtual void add_attention(size_t layer, Activations& a) = 0;
  /// Adds a.branch, the MLP's output; a.residual is then the layer's output (of AltUp: the active
  /// stream's).
  virtual void add_mlp(size_t layer, Activations& a) = 0;
  /// a.residual, which is what the next layer would read, was changed from outside.
  virtual void accept(Activations& a) = 0;
  /// a.residual becomes what the final norm reads.
  virtual void leave(Activations& a) = 0;
};

/// The one that the model's plan asks for. Borrows both, which have to outlive it.
std::unique_ptr<ResidualStream> make_residual_stream(Ops& ops, const TransformerWeights& weights);

}  // namespace specdec
