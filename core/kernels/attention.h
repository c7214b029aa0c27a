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
/// row and its pending ancestors (itself included), within the view's window or, of a view with
/// means, beside them. Softmax in the dtype
/// of `queries` (float32 or float64). Grouped-query: query head h reads kv head h / (heads /
/// kv_heads). queries, out: [n, heads, head_dim], contiguous.
///
/// A node's bits depend on the keys and values that it sees, one at each position, and on nothing
/// else: not on the slots they lie in, the page size, other nodes, rows or threads.
/// - A score is q.k summed over the dimensions in their order, then scaled, capped and biased.
/// - Positions are cut into chunks at multiples of kAttentionChunk. What a node sees of a chunk
///   gives (largest score, sum of exp(score - largest), values mixed with these weights), each
///   value summed over the positions in their order. A chunk of which it sees nothing gives
///   nothing. The view's sink is a chunk of its own before the others, then come its means, of
///   which each has the weight of its chunk's keys: the logarithm of their number is added to its
///   score, behind the cap. What the node reads in the view's exact pages, which depends on its
///   position alone, follows all others, in chunks at the same multiples.
/// - Chunks are added up in their order, each part scaled to the largest score so far (online
///   softmax: Milakov and Gimelshein, 2018, arXiv:1805.02867, algorithm 3); the end result is
///   divided by the sum.
/// All multiply-adds of these sums round once.
void paged_attention(const Tensor& queries, const KvView& view, const AttentionOptions& options,
                     Tensor& out);

/// Positions of a chunk.
constexpr int64_t kAttentionChunk = 256;

}  // namespace specdec
