#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "core/kv_store.h"
#include "core/transformer/layer_runner.h"
#include "core/transformer/transformer_model.h"

namespace specdec {

/// Layers whose queries come from a block alone, and keys and values from the committed context and
/// the block: what the block drafters share (DFlash, arXiv:2602.06036).
struct BlockBackbone {
  TransformerWeights weights;  ///< layers, final norm and sizes; it has no embedding and no head
  /// [layers] whether a row of the block sees only those before it, or all.
  std::vector<bool> causal;
  /// Windows count from the block's first row for all of its rows, and do not cover the block.
  bool window_from_anchor = false;
};

/// Cached forward of a BlockBackbone. The cache holds rows of the context, whose keys and values
/// are made of the target's states directly, never rows of a block.
class BlockLayers {
 public:
  /// Rows of the cache: options.max_length of the context and `block` more.
  BlockLayers(std::shared_ptr<const BlockBackbone> backbone, int64_t block,
              const KvStoreFactory& store, const TransformerOptions& options);

  int64_t length() const { return store_->length(0); }
  void reset() { store_->truncate(0, 0); }
  /// Keeps rows [n, hidden] of the context, at the next positions.
  void keep(const Tensor& context);
  /// Evaluates a block [n, hidden] at the positions after the context: [n, hidden] after the final
  /// norm. Keeps nothing. Throws Error where the cache's window_slack is less than a block.
  Tensor evaluate(const Tensor& block);
  /// Kept keys and values of a layer, normed and roped: each [kv_heads, length(), head_dim].
  std::pair<Tensor, Tensor> key_values(int64_t layer) const { return store_->key_values(layer, 0); }

 private:
  Tensor run(const Tensor& block);
  void check_window_slack(int64_t block) const;
  void keep_piece(const Tensor& context);

  std::shared_ptr<const BlockBackbone> backbone_;
  std::shared_ptr<Ops> ops_;
  std::vector<Linear> key_values_;  // [layers] rows of qkv that are keys and values
  std::unique_ptr<KvStore> store_;
  Workspace workspace_;
  LayerRunner layers_;
};

}  // namespace specdec
