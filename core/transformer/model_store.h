#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/kv_store.h"
#include "core/transformer/weights.h"

namespace specdec {

/// Geometry of the keys and values of a model's layers.
std::vector<LayerKv> cache_layers(const std::vector<LayerPlan>& plan);

/// A store for a model with these weights, for rows of up to `max_length` tokens; 0 = the config's
/// max_position_embeddings.
std::unique_ptr<KvStore> make_store(const TransformerWeights& weights, const KvStoreFactory& make,
                                    int64_t max_length);

}  // namespace specdec
