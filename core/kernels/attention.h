#pragma once
#include <ATen/core/Tensor.h>

#include "core/kernels/kv_view.h"

namespace specdec {

struct AttentionOptions {
  double scale = 1.0;     ///< multiplies q.k
  double soft_cap = 0.0;  ///< cap * tanh(score / cap) after the scale; 0 = none (Gemma 2: 50)
  Tensor bias;            ///< optional [n, columns], see ForwardInputs::attention_bias
};

/// Attention of a forward's new nodes over the paged cache: each node sees the kept tokens of its
/// row and its pending ancestors (itself included), within the view's window. Softmax in the dtype
/// of `queries` (float32 or float64). Grouped-query: query head h reads kv head h / (heads /
/// kv_heads). queries, out: [n, heads, head_dim], contiguous.
void paged_attention(const Tensor& queries, const KvView& view, const AttentionOptions& options,
                     Tensor& out);

}  // namespace specdec
