#pragma once
#include <ATen/core/Tensor.h>

#include <map>

#include "core/transformer/weights.h"

namespace specdec {

/// Activations of one forward, allocated once for each number of new nodes that comes up often.
struct Activations {
  Tensor residual;    ///< [n, hidden] the residual stream
  Tensor normed;      ///< [n, hidden]
  Tensor joined;      ///< [n, 2 * hidden] for layers with joined inputs, else undefined
  Tensor branch;      ///< [n, hidden] what attention or MLP adds
  Tensor qkv;         ///< [n, (heads + 2 * kv_heads) * head_dim], of the widest layer
  Tensor queries;     ///< [n, heads, head_dim]
  Tensor mixed;       ///< [n, heads, head_dim] attention's output
  Tensor mixed_flat;  ///< the same memory as [n, heads * head_dim]
  Tensor gate_up;     ///< [n, 2 * intermediate]
  Tensor gated;       ///< [n, intermediate]
};

/// Hands out activations by number of nodes. All layers of Gemma 1 to 3 have one geometry.
class Workspace {
 public:
  explicit Workspace(const TransformerInfo& model);
  Activations& activations(int64_t nodes);

 private:
  Activations allocate(int64_t nodes) const;

  LayerPlan plan_;
  int64_t hidden_;
  at::TensorOptions options_;
  std::map<int64_t, Activations> small_;
  Activations large_;
  int64_t large_nodes_ = 0;
};

}  // namespace specdec
