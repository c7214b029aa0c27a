#pragma once
#include <ATen/core/Tensor.h>

#include "core/kernels/kv_view.h"

namespace specdec {

struct QkvOptions {
  int64_t heads = 0;
  double eps = 0.0;
  Tensor q_scale;  ///< [head_dim], norm of each query head (Gemma 3); undefined = none
  Tensor k_scale;  ///< [head_dim]
  Tensor cos;      ///< [positions, head_dim / 2], of the activations' dtype
  Tensor sin;
  /// Projections beside the queries: 2 = keys and values; 1 = keys, whose raw numbers are the
  /// values too (Gemma 4: K = V); 0 = none, the view's keys and values are another layer's.
  int64_t kv_projections = 2;
  bool value_norm = false;  ///< each head of v is normed, without a scale (Gemma 3n, 4)
};

/// Makes attention's inputs of one fused projection: splits qkv [n, (heads + kv_projections *
/// kv_heads) * head_dim] (all query heads, key heads, value heads), norms the heads of q and k,
/// rotates them ("rotate half": pairs i and i + head_dim / 2) at the tables' positions, writes k
/// and v into their slots of the pages, in the cache's format, and of the exact pages, where there
/// are any (of a format with groups of keys those that the nodes complete: round_keys), and q into
/// `queries` [n, heads, head_dim]. Where the view says so, all three are multiplied with a Hadamard
/// matrix at last.
void qkv_to_cache(const Tensor& qkv, const QkvOptions& options, const KvView& view,
                  Tensor& queries);

}  // namespace specdec
