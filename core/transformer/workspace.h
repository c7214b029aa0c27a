#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <vector>

#include "core/kernels/experts.h"
#include "core/transformer/weights.h"

namespace specdec {

/// Activations within a layer, as wide as that layer has them: views of memory that all layers of a
/// forward share.
struct LayerActivations {
  Tensor qkv;         ///< [n, qkv_rows]
  Tensor queries;     ///< [n, heads, head_dim]
  Tensor mixed;       ///< [n, heads, head_dim] attention's output
  Tensor mixed_flat;  ///< the same memory as [n, heads * head_dim]
  Tensor gate_up;     ///< [n, 2 * intermediate]
  Tensor gated;       ///< [n, intermediate]
};

/// Memory of what only some families have; undefined where the model has none of it.
struct FamilyActivations {
  Tensor per_layer;       ///< [per_layer_count, n, per_layer_size] the layers' own inputs
  Tensor context, token;  ///< [n, per_layer_count * per_layer_size] their parts
  Tensor gate;            ///< [n, per_layer_size]
  Tensor gate_and_input;  ///< [n, 2 * per_layer_size]
  Tensor gated_input;     ///< [n, per_layer_size]

  Tensor router_logits;  ///< [n, experts]
  Routes routes;
  ExpertBuffers experts;
  Tensor mixture;  ///< [n, hidden] the experts' sum

  Tensor streams, predictions;  ///< [streams, n, hidden] of AltUp
  Tensor stream_routes;         ///< [n, streams]
  Tensor low_rank;              ///< [n, laurel_rank]
  Tensor laurel;                ///< [n, hidden]
};

/// Activations of one forward. Those of a number of new nodes lie where they lay before: each
/// number up to kMostSelected has memory of its own, larger ones share what the largest one takes,
/// which moves when it grows.
struct Activations {
  Tensor residual;          ///< [n, hidden] the residual stream, of AltUp the active one
  Tensor last;              ///< [1, hidden] its last row
  Tensor normed;            ///< [n, hidden]
  Tensor joined;            ///< [n, 2 * hidden] for layers with joined inputs, else undefined
  Tensor attention_inputs;  ///< [n, hidden] the same: where those of a recorded forward lie
  Tensor branch;            ///< [n, hidden] what attention or MLP adds
  std::vector<LayerActivations> layers;  ///< [layers]
  FamilyActivations family;
};

/// Hands out activations by number of nodes.
class Workspace {
 public:
  explicit Workspace(const TransformerInfo& model);
  Activations& activations(int64_t nodes);
  /// Most nodes that `selected` takes.
  static constexpr int64_t kMostSelected = 64;
  /// Activations of as many nodes as `nodes` [m] int64 says, fewer than those of `from`, whose
  /// streams and inputs they get.
  Activations& selected(const Activations& from, const Tensor& nodes);
  /// Bytes of the activations of `nodes` nodes.
  int64_t bytes(int64_t nodes) const;

 private:
  /// Memory for one of the tensors.
  using Take = std::function<Tensor(at::IntArrayRef sizes, at::ScalarType type)>;

  Activations allocate(int64_t nodes, const Take& take) const;
  void allocate_layers(int64_t nodes, const Take& take, Activations& a) const;
  void allocate_family(int64_t nodes, const Take& take, FamilyActivations& a) const;

  std::vector<LayerPlan> plan_;
  int64_t hidden_;
  int64_t per_layer_count_;
  at::ScalarType dtype_;
  at::Device device_;
  std::map<int64_t, Activations> small_;
  Activations large_;
  int64_t large_nodes_ = 0;
  Tensor memory_;  ///< [bytes] that large_ is cut from
};

/// Bytes of the activations of a forward of `nodes` nodes.
int64_t activation_bytes(const TransformerInfo& model, int64_t nodes);

}  // namespace specdec
