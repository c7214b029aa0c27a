#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/transformer/reference.h"
#include "experiments/train/head_config.h"

namespace specdec {

/// What the frozen target makes of a batch: all that a head may learn from.
struct TargetBatch {
  at::Tensor tokens;        ///< [rows, T + 1] int64
  ReferenceResult target;   ///< of tokens 0..T-1, without gradients; recorded ones have no logits
  at::Tensor distribution;  ///< [rows, T, vocab]: of the target as it decodes; not of recorded
  // Tensors of recorded answers; undefined without them.
  /// Places that count, those of answers: row * T + t, [n] int64. On the host, which chooses among
  /// them.
  at::Tensor places = {};
  at::Tensor log_sums = {};  ///< [n] logarithm of the sum of exponentials of the logits there

  /// All but places on a device.
  TargetBatch to(at::Device device) const;
};

/// Places of the distributions that are guessed at depth d: an anchor a has seen the target's
/// features up to token a and guesses token a + d + 1, whose distribution the target gives at t = a
/// + d. On the device of the batch's tokens.
struct GuessedPlaces {
  at::Tensor places;   ///< [n] int64 row * T + t, t >= d: those that count
  at::Tensor anchors;  ///< [n] int64 row * (T - 1) + t - d: columns of heads that are fed in pairs
  at::Tensor among;    ///< [n] int64: which of those of depth 0 they are
};
GuessedPlaces guessed_places(const TargetBatch& batch, int64_t depth);
/// The first column that an anchor of depths 1 to `depth` lies in.
int64_t first_anchor(const TargetBatch& batch, int64_t depth);

/// What a head says at depth d, of each of the guessed places.
struct DepthOutput {
  at::Tensor logits;       ///< [n, vocab, or the draft vocabulary]
  at::Tensor features;     ///< [n, hidden]: its guess of the feature at t; or undefined
  at::Tensor groups = {};  ///< [n, groups]: what it says of each of its TokenGroups; or undefined
};

/// The clusters of tokens of a head that scores some of them only.
struct TokenGroups {
  at::Tensor tokens;   ///< [groups, size] int64, each token once; undefined = all are scored
  int64_t chosen = 0;  ///< groups that are scored
};

/// One kind of head in training: what there is to add for a new one.
class HeadTraining {
 public:
  virtual ~HeadTraining() = default;
  /// The leaves that decay (matrices) and those that do not.
  virtual void collect(std::vector<at::Tensor>& matrices, std::vector<at::Tensor>& others) = 0;
  /// The plain, differentiable forward, for depths 1 to `depth`, or to its own number of heads.
  virtual std::vector<DepthOutput> forward(const TargetBatch& batch, int64_t depth) const = 0;
  /// The target's features that DepthOutput::features guesses: [rows, T, hidden], or undefined.
  virtual at::Tensor wanted_features(const TargetBatch& batch) const {
    (void)batch;
    return {};
  }
  /// The target's token of each draft token, [draft vocab] int64; undefined = all tokens.
  virtual at::Tensor draft_tokens() const { return {}; }
  /// The groups of tokens that DepthOutput::groups speaks of.
  virtual TokenGroups groups() const { return {}; }
  /// Stores the head, in HeadShape::stored, as its loader reads it.
  virtual void save(const std::filesystem::path& folder) const = 0;
  /// Takes a stored head's parameters over.
  virtual void load(const std::filesystem::path& folder) = 0;
};

/// What a HeadTraining is made from.
struct HeadTrainingContext {
  std::shared_ptr<const TransformerTensors> target;  ///< float32, outlives the head
  /// [vocab] how much a draft vocabulary gains by each token: how often it comes in the training
  /// text, or its probability summed over the recorded answers.
  at::Tensor token_weights;
  uint64_t seed = 0;                           ///< of initial values
  std::optional<at::ScalarType> matmul_dtype;  ///< as in reference_forward
  std::string target_name = {};                ///< for files that say what they were trained on
};

std::unique_ptr<HeadTraining> make_medusa_training(const HeadShape& shape,
                                                   const HeadTrainingContext& context);

/// EAGLE-1/2 and EAGLE-3: `shape.type` says which.
std::unique_ptr<HeadTraining> make_eagle_training(const HeadShape& shape,
                                                  const HeadTrainingContext& context);
std::unique_ptr<HeadTraining> make_mtp_training(const HeadShape& shape,
                                                const HeadTrainingContext& context);
std::unique_ptr<HeadTraining> make_assistant_training(const HeadShape& shape,
                                                      const HeadTrainingContext& context);

/// A LoRA of the target's first layers, which draft with its final norm and head (drafter `self`).
std::unique_ptr<HeadTraining> make_self_training(const HeadShape& shape,
                                                 const HeadTrainingContext& context);

/// Text tokens that depth `depth` is fed in an unrolled forward: column t holds the token at t +
/// depth; [rows, T - 1], columns beyond the text repeat its last token and count for nothing.
at::Tensor tokens_at_depth(const TargetBatch& batch, int64_t depth);
/// The heaviest tokens, in the order of their ids: [count] int64.
at::Tensor heaviest_tokens(const at::Tensor& token_weights, int64_t count);
/// Makes parameters leaves on a device and sorts them: matrices decay, vectors do not.
void collect_parameters(const std::vector<at::Tensor*>& parameters, at::Device device,
                        std::vector<at::Tensor>& matrices, std::vector<at::Tensor>& others);

/// Makes the training of a head of the type shape.type.
std::unique_ptr<HeadTraining> make_head_training(const HeadShape& shape,
                                                 const HeadTrainingContext& context);

}  // namespace specdec
