#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/language_model.h"
#include "core/result_memory.h"
#include "core/transformer/draft_steps.h"
#include "core/transformer/forward_graphs.h"
#include "core/transformer/heads/feature_head.h"
#include "core/transformer/step_memory.h"

namespace specdec {

/// The cached forward of a head that lives on a target, as a language model over the target's
/// tokens: token t + 1 is fed together with ForwardInputs::features at t, its logits are those of
/// token t + 2, and final_hidden is the head's own feature at t + 1. Hence its kept length is one
/// less than that of the sequence. Missing features count as zeros, which is enough to measure what
/// a forward costs.
class FeatureModel final : public LanguageModel {
 public:
  FeatureModel(std::unique_ptr<FeatureHead> head, std::shared_ptr<const TransformerWeights> target,
               const KvStoreFactory& store, const TransformerOptions& options);

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options = {}) override;
  void commit(std::span<const int64_t> path, RowId row = 0) override;
  void truncate(int64_t length, RowId row = 0) override;
  int64_t rewindable_to(int64_t length, RowId row = 0) const override;
  bool draws_drafts() const override;
  std::optional<DrawnChain> draw_chain(TokenSpan fed, const ChainRequest& chain,
                                       const ForwardOptions& options = {},
                                       const ForwardInputs& inputs = {}, RowId row = 0) override;
  std::optional<DrawnTree> draw_tree(TokenSpan fed, const TreeRequest& tree,
                                     const ForwardOptions& options = {},
                                     const ForwardInputs& inputs = {}, RowId row = 0) override;
  RowId open() override;
  RowId fork(RowId row, int64_t length) override;
  void close(RowId row) override;
  int64_t length(RowId row = 0) const override;
  int64_t pending(RowId row = 0) const override;
  int64_t vocab_size() const override;
  const DraftVocabulary* draft_vocabulary() const override;
  int64_t max_length() const override;

  Ops& ops() const { return *ops_; }
  const std::shared_ptr<Ops>& shared_ops() const { return ops_; }
  /// See TransformerModel::can_step, begin_steps and undo_forward. False where no graph can hold
  /// the tokens `fed` and the steps behind them now.
  bool can_step(int64_t nodes) const { return engine_->can_step(nodes); }
  bool begin_steps(TokenSpan fed, const DraftSteps& steps, int64_t count, GraphKey& key);
  void undo_forward() { engine_->undo_forward(); }
  /// The target's features [n, width] as run_fed reads them, on the device.
  Tensor prepared(const Tensor& features) const;
  /// Evaluates the tokens `fed` by the features [n, width] at those before them, the target's or,
  /// `own`, of heads: the features [n, hidden] after them, in memory that the next draft
  /// overwrites. Calls ops only, as keep_fed and fed_logits do.
  Tensor run_fed(const Tensor& features, bool own);
  /// run_fed of a module whose features after these tokens nobody reads: they become what it keeps.
  void keep_fed(const Tensor& features, bool own);
  /// Logits [1, columns] after the last token of run_fed, before a step is run.
  Tensor fed_logits();
  /// What the nodes of a step are fed, on the device.
  struct StepInputs {
    Tensor tokens;    ///< [k] int32
    Tensor features;  ///< [m, hidden] the head's own, of the step before
    Tensor parents;   ///< [k] int32 rows of these, of the nodes that each follows; undefined = all
  };
  /// Evaluates the nodes of a step that begin_steps made room for, from its `first` one of all on,
  /// fed tokens among them: the features [k, hidden] after them, in memory that the next step
  /// overwrites. Calls ops only, as step_logits does.
  Tensor run_step(int64_t first, const StepInputs& inputs);
  /// Logits [k, columns] after the newest step.
  Tensor step_logits();
  /// How many forwards and drafts ran as graphs.
  GraphCounts graph_counts() const { return graphs_.counts() + engine_->graph_counts(); }

 private:
  /// The features [n, width] of a batch's tokens as the head enters them, on the device.
  Tensor features_of(const TokenBatch& batch) const;
  /// The features in the first result of `kept`, where a graph reads them.
  static Tensor placed_features(Ops& kept, const Tensor& features);
  /// What the layers are fed of tokens that are in the vocabulary: those on a device are not read.
  TokenBatch enter(const TokenBatch& batch) const;
  /// A forward as one graph, from the features to the logits; nothing, and nothing is pending,
  /// where no graph can hold it now.
  std::optional<ForwardResult> forward_graph(const TokenBatch& batch,
                                             const ForwardOptions& options);
  /// A forward of tokens that are in the vocabulary: as a graph, or op by op around the layers.
  ForwardResult forward_checked(const TokenBatch& batch, const ForwardOptions& options);
  /// The layers of what was entered, and what becomes of it.
  ForwardResult evaluate(const TokenBatch& entered, const ForwardOptions& options);
  /// What the layers are fed of a step's tokens.
  ForwardInputs enter_step(const Tensor& tokens, const Tensor& features);
  /// Notes what they came to.
  void leave_step(const Tensor& output);
  /// What the layers come to of the tokens `fed`, [n, hidden].
  Tensor fed_output(const Tensor& features, bool own);
  /// Columns of the head's logits.
  int64_t columns() const;
  /// Draws a draft behind `fed`: as a graph, or step by step.
  void draw(const TokenBatch& fed, const DraftSteps& steps);
  ForwardResult finish(const TokenBatch& batch, const Tensor& output,
                       const ForwardOptions& options) const;
  /// Says whose logits a result has, and copies to the host what is read there.
  void give(const ForwardOptions& options, ForwardResult& result) const;

  std::unique_ptr<FeatureHead> head_;
  std::shared_ptr<const TransformerWeights> target_;
  std::shared_ptr<Ops> ops_;
  StepMemories step_memories_;
  StepMemory* memory_ = nullptr;  ///< of the draft in progress
  /// Memories of tokens that are fed with the target's features, and with the head's own.
  std::array<StepMemories, 2> fed_memories_;
  StepMemories scored_memories_;  ///< of what their logits are products of
  StepMemory fed_logits_memory_;
  ResultMemory logits_memory_;
  ForwardGraphs graphs_;               ///< of forwards
  Ops* leaving_ = nullptr;             ///< of the newest step
  Tensor step_output_, step_feature_;  ///< of the newest step
  Tensor fed_tokens_;                  ///< of begin_steps
  Tensor fed_output_, fed_feature_;    ///< [1, hidden] of the last one of these
  std::unique_ptr<TransformerModel> engine_;
};

/// Makes the model of an EAGLE head, which shares the weights of head and target; the head must
/// have been loaded for this target.
std::unique_ptr<FeatureModel> make_eagle_model(const std::shared_ptr<const EagleHead>& head,
                                               std::shared_ptr<const TransformerWeights> target,
                                               const KvStoreFactory& store,
                                               const TransformerOptions& options = {});
/// Makes the model of one of an MTP head's modules, which shares the weights of head and target;
/// the head must have been loaded for this target.
std::unique_ptr<FeatureModel> make_mtp_model(const std::shared_ptr<const MtpHead>& head,
                                             size_t module,
                                             std::shared_ptr<const TransformerWeights> target,
                                             const KvStoreFactory& store,
                                             const TransformerOptions& options = {});

}  // namespace specdec
