#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/block_model.h"
#include "core/transformer/heads/block_layers.h"
#include "core/transformer/heads/dflash_config.h"
#include "core/transformer/random_weights.h"

namespace specdec {

/// z-lab's DFlash (arXiv:2602.06036): a block [newest token, mask, mask, ...] that sees the
/// target's states of the committed text.
///
///   context = hidden_norm(fc [captured streams])         rows of the committed tokens
///   states  = norm(layers(embedding of the block, over context and block))
///   logits of draft i = the target's head(states of row i), with the head's own cap
///
/// A draft is the token of its row's own position; the first row's is known. All slots are
/// independent of one another.
struct DFlashHead {
  DFlashConfig config;
  Linear fc;           ///< [hidden, captured * hidden]
  Tensor hidden_norm;  ///< [hidden]
  std::shared_ptr<const BlockBackbone> backbone;
  std::string fingerprint;  ///< of config and weights, 16 hex digits
  std::string note = {};    ///< of check_head_target, where it was loaded
};

/// Loads a head's folder (config.json, model.safetensors) for a target, on the target's device.
/// Matrices are converted to `dtype`: see plain_dtype. Copies of the target's embedding and head,
/// which older files carry, are left out. Throws WeightsError: see load_dflash_config and
/// check_head_target; missing or unknown tensors, wrong shapes.
std::shared_ptr<DFlashHead> load_dflash_head(const std::filesystem::path& folder,
                                             const TransformerInfo& target,
                                             std::optional<at::ScalarType> dtype = std::nullopt);
/// Writes config.json and model.safetensors under the published names; dtype: see TensorWriter.
void save_dflash_head(const DFlashHead& head, const std::filesystem::path& folder,
                      at::ScalarType dtype);
/// Random weights (normal, sd 1/sqrt(fan in)), for tests and where training starts.
std::shared_ptr<DFlashHead> random_dflash_head(const DFlashConfig& config,
                                               const RandomWeightsOptions& options = {});

/// The cached forward of a head beside its target, whose embedding and head it shares.
class DFlashModel final : public BlockModel {
 public:
  /// options.max_length: most tokens of the target.
  DFlashModel(std::shared_ptr<const DFlashHead> head,
              std::shared_ptr<const TransformerWeights> target, const KvStoreFactory& store,
              const TransformerOptions& options);

  int64_t vocab_size() const override { return target_->config.vocab_size; }
  int64_t feature_width() const override { return head_->fc.in(); }
  int64_t depth() const override { return head_->config.block_size - 1; }
  int64_t length() const override { return layers_.length(); }
  void reset() override { layers_.reset(); }
  void keep(TokenSpan committed, const Tensor& features) override;
  void evaluate(Token newest, int64_t wanted) override;
  Tensor logits(const Draft& partial, std::span<const int64_t> nodes) override;

  /// [block - 1, hidden] of the newest block: what the target's head reads.
  const Tensor& states() const { return states_; }
  const BlockLayers& layers() const { return layers_; }

 private:
  std::shared_ptr<const DFlashHead> head_;
  std::shared_ptr<const TransformerWeights> target_;
  std::shared_ptr<Ops> ops_;
  BlockLayers layers_;
  Tensor states_;
  Tensor logits_;  // [wanted, vocab] of the newest block
};

}  // namespace specdec
