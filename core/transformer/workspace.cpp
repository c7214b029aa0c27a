#include "core/transformer/workspace.h"

#include <ATen/ATen.h>

namespace specdec {
namespace {

/// Decoding and verifying use few nodes, in ever the same numbers; prefill chunks are larger.
constexpr int64_t kSmall = 64;

}  // namespace

Workspace::Workspace(const TransformerInfo& model)
    : plan_(model.plan.front()),
      hidden_(model.config.hidden_size),
      options_(at::TensorOptions(model.compute_dtype()).device(model.device)) {}

Activations& Workspace::activations(int64_t nodes) {
  if (nodes <= kSmall) {
    const auto found = small_.find(nodes);
    return found != small_.end() ? found->second
                                 : small_.emplace(nodes, allocate(nodes)).first->second;
  }
  if (nodes != large_nodes_) {
    large_ = allocate(nodes);
    large_nodes_ = nodes;
  }
  return large_;
}

Activations Workspace::allocate(int64_t nodes) const {
  const int64_t heads_width = plan_.heads * plan_.head_dim;
  Activations a;
  a.residual = at::empty({nodes, hidden_}, options_);
  a.normed = at::empty({nodes, hidden_}, options_);
  if (plan_.joined_inputs) {
    a.joined = at::empty({nodes, 2 * hidden_}, options_);
  }
  a.branch = at::empty({nodes, hidden_}, options_);
  a.qkv = at::empty({nodes, heads_width + 2 * plan_.kv_heads * plan_.head_dim}, options_);
  a.queries = at::empty({nodes, plan_.heads, plan_.head_dim}, options_);
  a.mixed = at::empty({nodes, plan_.heads, plan_.head_dim}, options_);
  a.mixed_flat = a.mixed.view({nodes, heads_width});
  a.gate_up = at::empty({nodes, 2 * plan_.intermediate_size}, options_);
  a.gated = at::empty({nodes, plan_.intermediate_size}, options_);
  return a;
}

}  // namespace specdec
