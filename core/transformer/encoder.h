#pragma once
#include <memory>

#include "core/forward.h"
#include "core/kernels/ops.h"
#include "core/kv_store.h"
#include "core/transformer/layer_runner.h"
#include "core/transformer/transformer_model.h"
#include "core/transformer/weights.h"
#include "core/transformer/workspace.h"

namespace specdec {

/// The forward of models whose tokens see those after them too (use_bidirectional_attention:
/// EmbeddingGemma). It takes whole texts and keeps nothing of them: keys and values live in pages
/// of `store` until the next forward. Not safe for concurrent calls; weights are shared.
class Encoder {
 public:
  /// Throws InternalError for weights of a decoder. Of the options it reads `max_length` and `ops`.
  Encoder(std::shared_ptr<const TransformerWeights> weights, const KvStoreFactory& store,
          const TransformerOptions& options = {});

  /// Hidden states after the final norm [n, hidden] of a batch's tokens, in the host's memory. Each
  /// row of the batch is a whole text; it may have neither parents nor other inputs. A row's states
  /// depend, bit for bit, on its own tokens alone. Throws Error for a text beyond max_length() and
  /// a token outside the vocabulary.
  Tensor forward(const TokenBatch& batch);
  /// Most tokens of a text.
  int64_t max_length() const { return store_->max_length(); }
  const TransformerWeights& weights() const { return *weights_; }

 private:
  void run_layers(const TokenBatch& batch, Activations& a);

  std::shared_ptr<const TransformerWeights> weights_;
  std::shared_ptr<Ops> ops_;
  std::unique_ptr<KvStore> store_;
  Workspace workspace_;
  LayerRunner layers_;
};

}  // namespace specdec
