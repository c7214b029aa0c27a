#pragma once
#include <cstdint>
#include <vector>

#include "core/forward.h"
#include "core/kernels/ops.h"
#include "core/kv_store.h"
#include "core/transformer/pending_layers.h"
#include "core/transformer/weights.h"

namespace specdec {

// What a model refuses before it changes anything.

/// Throws Error for a model whose tokens see later ones: it cannot decode.
void check_decodes(const TransformerInfo& model);
/// Throws Error where a row holds tokens, whose keys and values are those of the adapters before.
void check_adapters_may_change(const KvStore& store);
/// Throws Error for a token that the model does not know. Those on a device are not read.
void check_vocabulary(const TransformerInfo& model, const Tensor& tokens);
/// Nodes of a batch, of which there is at least one. Throws Error for unknown tokens and, where
/// layers have inputs of each token, for embeddings without tokens; InternalError for inputs of
/// other shapes and those that the model has no use for.
int64_t check_nodes(const TransformerInfo& model, const TokenBatch& batch);
/// Throws Error for an attention_bias that holds NaN or +inf, and for one that hides a node from
/// itself: where it sees nothing there is no attention. InternalError for another shape.
void check_bias(const TokenBatch& batch, int64_t nodes, const KvStore& store);
/// The first `count` layers.
LayerList first_layers(int64_t count);
/// Layers of a forward that are not all. Throws InternalError where they do not ascend within the
/// plan, Error where one reads the keys and values of a layer that is left out.
LayerList evaluated_layers(const std::vector<int64_t>& layers, const std::vector<LayerPlan>& plan);
/// Throws InternalError for a layer that is to be captured and is not among those evaluated.
void check_captured(const std::vector<int64_t>& captured, const std::vector<int64_t>& evaluated);
/// See ForwardOptions::library_products: what it throws.
void check_library_products(const TokenBatch& batch, const ForwardOptions& options, const Ops& ops,
                            const KvStore& store);
/// Throws Error where the store's format has no such part.
void check_kv_read(KvRead read, const KvStore& store);

}  // namespace specdec
