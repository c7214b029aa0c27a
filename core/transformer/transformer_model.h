#pragma once
#include <memory>

#include "core/kernels/ops.h"
#include "core/kv_store.h"
#include "core/language_model.h"
#include "core/transformer/weights.h"

namespace specdec {

struct TransformerOptions {
  int64_t max_length = 0;  ///< most tokens of a row; 0 = the config's max_position_embeddings
  /// Tokens that may be generated: later rows of the embedding only pad it, and their logits are
  /// -inf. 0 = the whole vocabulary.
  int64_t usable_tokens = 0;
  std::shared_ptr<Ops> ops = nullptr;  ///< what runs the forward; nullptr = the device's own
  /// Copies results to the host, where strategies read them; a head's layer keeps them where its
  /// next op wants them.
  bool results_on_host = true;
};

/// The cached forward of every family whose layers a LayerPlan can say: weights + a store of keys
/// and values + workspace. Cheap to make, one per thread; weights are shared.
class TransformerModel final : public LanguageModel {
 public:
  TransformerModel(std::shared_ptr<const TransformerWeights> weights, const KvStoreFactory& store,
                   const TransformerOptions& options = {});
  ~TransformerModel() override;

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options = {}) override;
  void commit(std::span<const int64_t> path, int64_t row = 0) override;
  void truncate(int64_t length, int64_t row = 0) override;
  void reorder(std::span<const int64_t> parents) override;
  int64_t length(int64_t row = 0) const override;
  int64_t pending(int64_t row = 0) const override;
  int64_t vocab_size() const override;
  int64_t max_length() const override;
  const Internals* internals() const override;
  /// Forgets the nodes of the newest forward, as if it had not been: for a head that fails after
  /// its layer. Only between that forward and the next call that changes the model.
  void undo_forward();

  const TransformerWeights& weights() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Parts of the forward that heads on a target share.

/// Input embeddings as the first layer sees them: tokens [n] int32 -> [n, hidden].
Tensor embed_tokens(Ops& ops, const TransformerWeights& weights, const Tensor& tokens);
/// Final-normed hidden states to logits, soft cap included: [n, hidden] -> [n, vocab].
Tensor head_logits(Ops& ops, const TransformerWeights& weights, const Tensor& hidden);
/// Those of the options, or the device's own; throws Error for a device that has none.
std::shared_ptr<Ops> ops_of(const TransformerOptions& options, const TransformerInfo& model);
/// The rows of `values` [n, ...] that belong to the last node of each row of a batch of n nodes.
Tensor last_of_rows(const TokenBatch& batch, const Tensor& values);
/// Throws Error for a token that the model does not know.
void check_vocabulary(const TransformerInfo& model, const Tensor& tokens);

}  // namespace specdec
