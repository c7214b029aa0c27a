#pragma once
#include <cstdint>

#include "core/forward.h"
#include "core/kv_store.h"
#include "core/transformer/weights.h"

namespace specdec {

// What a model's forward refuses before it changes anything.

/// Throws Error for a token that the model does not know.
void check_vocabulary(const TransformerInfo& model, const Tensor& tokens);
/// Nodes of a batch, of which there is at least one. Throws Error for unknown tokens and, where
/// layers have inputs of each token, for embeddings without tokens; InternalError for inputs of
/// other shapes and those that the model has no use for.
int64_t check_nodes(const TransformerInfo& model, const TokenBatch& batch);
/// Throws Error for an attention_bias that holds NaN or +inf, and for one that hides a node from
/// itself: where it sees nothing there is no attention. InternalError for another shape.
void check_bias(const TokenBatch& batch, int64_t nodes, const KvStore& store);

}  // namespace specdec
