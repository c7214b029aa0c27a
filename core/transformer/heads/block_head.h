#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/block_model.h"
#include "core/draft_vocabulary.h"
#include "core/transformer/heads/block_correction.h"
#include "core/transformer/heads/block_head_config.h"
#include "core/transformer/heads/block_layers.h"
#include "core/transformer/heads/convolved_ops.h"
#include "core/transformer/random_weights.h"

namespace specdec {

/// A block drafter: DFlash (arXiv:2602.06036) and the methods that came of it. A block [newest
/// token, mask, mask, ...] sees the target's states of the committed text.
///
///   context = hidden_norm(fc [captured streams])         rows of the committed tokens
///   states  = norm(layers(embedding of the block, over context and block))
///   logits of a slot = head(its row's states), with the head's own cap; slots are rows of the
///   block logits after a node = correction(logits of slot `depth`, the tokens drafted down to the
///   node)
struct BlockHead {
  BlockHeadConfig config;
  Linear fc;           ///< [hidden, captured * hidden]
  Tensor hidden_norm;  ///< [hidden]
  Linear embedding;    ///< [vocab, hidden]; undefined: the target's
  Linear lm_head;  ///< [draft vocab, hidden], in the order of target_ids; undefined: the target's
  Tensor target_ids;  ///< [draft vocab] the target's tokens, ascending; undefined: all
  std::shared_ptr<const BlockBackbone> backbone;
  std::vector<LayerConvolutions> convolutions;        ///< [layers]; empty = none
  std::shared_ptr<const BlockCorrection> correction;  ///< nullptr = none
  std::string fingerprint;                            ///< of config and weights, 16 hex digits
  std::string note = {};                              ///< of check_head_target, where it was loaded
};

/// Loads a head's folder (config.json, model.safetensors) for a target, on the target's device.
/// Matrices are converted to `dtype`: see plain_dtype; what is computed on the host
/// (block_correction.h, convolved_ops.h) to the compute dtype. Copies of the target's embedding and
/// head, which older files of z-lab's carry, are left out. Throws WeightsError: see
/// load_block_head_config and check_head_target; missing or unknown tensors, wrong shapes.
std::shared_ptr<BlockHead> load_block_head(const std::filesystem::path& folder,
                                           const TransformerInfo& target,
                                           std::optional<at::ScalarType> dtype = std::nullopt);
/// Writes config.json and model.safetensors under the published names; dtype: see TensorWriter.
void save_block_head(const BlockHead& head, const std::filesystem::path& folder,
                     at::ScalarType dtype);
/// Random weights (normal, sd 1/sqrt(fan in)), for tests and where training starts.
std::shared_ptr<BlockHead> random_block_head(const BlockHeadConfig& config,
                                             const RandomWeightsOptions& options = {});

/// The cached forward of a head beside its target, whose embedding and head it shares.
class BlockHeadModel final : public BlockModel {
 public:
  /// options.max_length: most tokens of the target.
  BlockHeadModel(std::shared_ptr<const BlockHead> head,
                 std::shared_ptr<const TransformerWeights> target, const KvStoreFactory& store,
                 const TransformerOptions& options);

  int64_t vocab_size() const override { return target_->config.vocab_size; }
  int64_t feature_width() const override { return head_->fc.in(); }
  int64_t depth() const override { return head_->config.drafts; }
  const DraftVocabulary* draft_vocabulary() const override {
    return vocabulary_ ? &*vocabulary_ : nullptr;
  }
  bool leaves_out_tokens() const override { return head_->config.method == BlockMethod::kDFlash2; }
  int64_t length() const override { return layers_.length(); }
  void reset() override { layers_.reset(); }
  void keep(TokenSpan committed, const Tensor& features) override;
  void evaluate(Token newest, int64_t wanted) override;
  Tensor logits(const Draft& partial, std::span<const int64_t> nodes) override;
  Tensor confidence(const Draft& partial, std::span<const int64_t> nodes) override;

  /// [drafts, hidden] of the newest block: what the head reads.
  const Tensor& states() const { return states_; }
  /// [wanted, draft vocab] of its slots, each by itself.
  const Tensor& slot_logits() const { return slots_.logits; }
  const BlockLayers& layers() const { return layers_; }

 private:
  const Linear& embedding() const;
  const Linear& lm_head() const;
  Tensor score(const Tensor& states);

  std::shared_ptr<const BlockHead> head_;
  std::shared_ptr<const TransformerWeights> target_;
  std::optional<DraftVocabulary> vocabulary_;
  std::shared_ptr<Ops> ops_;
  BlockLayers layers_;
  Tensor states_;
  BlockSlots slots_;  // of the newest block
};

}  // namespace specdec
