#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/drawn_chain.h"
#include "core/drawn_tree.h"
#include "core/kernels/kept_results.h"
#include "core/transformer/draft_steps.h"
#include "core/transformer/forward_graphs.h"
#include "core/transformer/heads/draft_rows.h"
#include "core/transformer/heads/head_files.h"
#include "core/transformer/transformer_model.h"
#include "core/transformer/weights.h"

namespace specdec {

/// What config.json and the tensors of a Medusa checkpoint say.
struct MedusaConfig {
  int64_t num_heads = 0;   ///< medusa_num_heads: how many tokens ahead
  int64_t num_layers = 1;  ///< medusa_num_layers: residual blocks of a head
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  /// The heads end in the target's own head instead of a matrix each (ours, for small files).
  bool share_lm_head = false;
  /// Number of the target's tokens that have logits, with share_lm_head; 0 = all.
  int64_t draft_vocab_size = 0;
  HeadTarget trained_for = {};
};

/// x + SiLU(weight x + bias)
struct MedusaBlock {
  Tensor weight;  ///< [hidden, hidden]
  Tensor bias;    ///< [hidden]
};

/// Medusa's residual heads (Cai et al., 2024, arXiv:2401.10774, eq. 1): head k reads the target's
/// last hidden state, after the final norm, of token t and gives the distribution of token t + k
/// + 2.
struct MedusaHead {
  MedusaConfig config;
  std::vector<std::vector<MedusaBlock>> blocks;  ///< [num_heads][num_layers]
  std::vector<Tensor> outputs;  ///< [num_heads], each [vocab, hidden]; empty if share_lm_head
  /// The target's token of each logit, see draft_rows.h; undefined = all tokens.
  Tensor target_ids = {};
  std::string fingerprint;  ///< of the stored weights, 16 hex digits
  std::string note = {};    ///< of check_head_target, where it was loaded
};

/// Heads as the paper begins with them: blocks that are the identity and, where they have one, the
/// target's head as their output matrix; in `dtype` on the target's device.
MedusaHead new_medusa_head(const MedusaConfig& config, const TransformerTensors& target,
                           at::ScalarType dtype);

/// What head `index` makes of hidden states [..., hidden], before its output matrix: plain,
/// differentiable ATen ops. Parameters narrower than `hidden` are widened.
Tensor medusa_hidden(const MedusaHead& head, const Tensor& hidden, int64_t index);

/// The heads as the kernels run them, on a target.
class MedusaModel {
 public:
  MedusaModel(const MedusaHead& head, std::shared_ptr<const TransformerWeights> target,
              const TransformerOptions& options = {});
  /// Logits [n, vocab] that head `index` gives for hidden states [n, hidden]; with a draft
  /// vocabulary one for each of its tokens. On the host.
  ForwardResult logits(const Tensor& hidden, int64_t index) const;
  /// Whether device_logits finds tokens by them: on a device that samples.
  bool samples() const { return ops_->sampler() != nullptr; }
  /// logits() where the weights lie, beside the device's sampler.
  ForwardResult device_logits(const Tensor& hidden, int64_t index) const;
  /// Drafts a chain on the device, each token by the head of its place from one hidden state
  /// [1, hidden], and reads it back at once; nothing where the logits are damaged. InternalError
  /// for more tokens than there are heads, and where samples() is false.
  std::optional<DrawnChain> draw_chain(const ChainRequest& chain, const Tensor& hidden);
  /// Drafts a tree as draw_chain does a chain: the children of each of its levels by the head of
  /// their depth, which runs once for all of them.
  std::optional<DrawnTree> draw_tree(const TreeRequest& tree, const Tensor& hidden);
  /// How many chains and trees ran as graphs.
  const GraphCounts& graph_counts() const { return graphs_.counts(); }
  const std::optional<DraftVocabulary>& vocabulary() const { return vocabulary_; }
  int64_t count() const { return std::ssize(blocks_); }  ///< heads
  const TransformerWeights& target() const { return *target_; }

 private:
  /// What head `index` says of hidden states where the weights lie, by ops alone.
  Tensor logits(Ops& ops, const Tensor& hidden, int64_t index) const;
  /// The sampler that draws a draft of so many levels.
  DeviceSampler& sampler_of(int64_t levels) const;
  /// Number of columns of the heads' logits.
  int64_t columns() const;
  /// Draws one level after the other from a hidden state.
  void draw(const DraftSteps& steps, const Tensor& hidden);

  std::shared_ptr<const TransformerWeights> target_;
  std::shared_ptr<Ops> ops_;
  KeptResults kept_;                         ///< of a level
  ForwardGraphs graphs_;                     ///< of chains and trees
  Tensor hidden_, ones_;                     ///< [1, hidden] what drafts are drawn from; ones
  std::vector<std::vector<Linear>> blocks_;  ///< [num_heads][num_layers]
  std::vector<Linear> outputs_;              ///< [num_heads]; empty = the target's own head
  std::optional<DraftVocabulary> vocabulary_;
  DraftRows rows_;
};

/// Reads `folder`/config.json; hidden_size and vocab_size are 0 where it leaves them out.
MedusaConfig read_medusa_config(const std::filesystem::path& folder);
/// Reads `folder`/config.json and checks it against the target's config. Throws WeightsError naming
/// file and key: also for a head of another kind or of a target of another shape.
MedusaConfig read_medusa_config(const std::filesystem::path& folder,
                                const TransformerConfig& target);

/// The tensors of the heads' file in a folder: headers only. Throws WeightsError when it is
/// missing.
CheckpointTensors medusa_tensors(const std::filesystem::path& folder);

/// Loads FasterDecoding/Medusa's files: config.json and medusa_lm_head.safetensors (or
/// .pt, or a checkpoint's files) with `{head}.{layer}.linear.weight`, `.bias` and
/// `{head}.{num_layers}.weight`, on the target's device. All is converted to `dtype`: see
/// plain_dtype. hidden_size and vocab_size are the target's where
/// config.json leaves them out. Throws WeightsError: see read_medusa_config and check_head_target;
/// missing or unknown tensors, wrong shapes.
MedusaHead load_medusa_head(const std::filesystem::path& folder, const TransformerInfo& target,
                            std::optional<at::ScalarType> dtype = std::nullopt);

/// Writes the heads; dtype: see TensorWriter.
void save_medusa_head(const MedusaHead& head, const std::filesystem::path& folder,
                      at::ScalarType dtype);

}  // namespace specdec
