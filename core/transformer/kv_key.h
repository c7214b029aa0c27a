#pragma once
#include <string>

#include "core/kv_store.h"
#include "core/transformer/weights.h"

namespace specdec {

/// KvSnapshots::kv_key of a model: of its weights as they are multiplied, `fingerprint`, which
/// names the checkpoint and the adapters, and the store's format.
std::string kv_key_of(const TransformerWeights& weights, const std::string& fingerprint,
                      const KvStore& store);

}  // namespace specdec
