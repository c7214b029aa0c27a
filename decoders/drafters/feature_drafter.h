#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/drafting_heads.h"
#include "core/language_model.h"
#include "decoders/drafters/distribution_drafter.h"
#include "decoders/drafters/target_features.h"

namespace specdec {

struct FeatureDrafterOptions {
  std::optional<bool> sample = {};  ///< see DraftModelOptions::sample
  /// The target's residual streams that the head is fed, concatenated; empty: its final hidden
  /// state, after the norm.
  std::vector<int64_t> capture_layers = {};
  int64_t hidden_size = 0;     ///< width of the target that the head was made for
  ModuleDrawing modules = {};  ///< where there are several
};

/// Drafts with a head that continues the target's features: EAGLE-1, 2 and 3 (Li et al.,
/// arXiv:2401.15077, 2406.16858, 2503.01840) and multi-token-prediction modules (DeepSeek-V3,
/// arXiv:2412.19437).
///
/// A module is a language model that is fed token t + 1 with a feature at t (ForwardInputs::
/// features) and gives the logits of token t + 2 and its own feature at t + 1. Committed tokens are
/// fed with the target's true features, once these are known; drafted ones with the features that
/// the head gave for their parents, as pending nodes that are forgotten afterwards. So its cache
/// only ever keeps what came of true features.
///
/// With several modules, number d is fed the features of number d - 1 and says the distribution
/// after nodes of depth d; the last one, fed its own, says those of all deeper nodes.
class FeatureDrafter final : public DistributionDrafter {
 public:
  FeatureDrafter(std::vector<std::unique_ptr<LanguageModel>> modules,
                 FeatureDrafterOptions options);

  Needs needs() const override;
  /// Refuses a target without internals, with another hidden size or vocabulary, or without the
  /// layers that the head is fed.
  void check(const LanguageModel& target) const override;
  void reset() override;
  void skip(const DraftContext& context) override { target_features_.collect(context); }

 private:
  /// What the modules made of a node of the draft in progress; undefined and -1 where they were not
  /// asked.
  struct Node {
    int64_t depth = 0;
    std::vector<Tensor> features;  // [modules], each [1, hidden]
    std::vector<int64_t> pending;  // [modules]
  };

  std::optional<DraftRoom> begin_draft(const DraftContext& context) override;
  void end_draft() override { nodes_.clear(); }
  Tensor expand(const Draft& partial, std::span<const int64_t> frontier) override;
  std::optional<DrawnChain> draw_chain(const ChainRequest& chain) override;
  std::optional<DrawnTree> draw_tree(const TreeRequest& tree) override;
  /// A draft, drawn by `draw` behind tokens that the modules have not kept, with their features.
  /// `count`: tokens of the draft; `can_draw`: of several modules, whether they can.
  template <class Draw>
  auto draw_behind(int64_t count, const ModuleDrawing::CanDraw& can_draw, const Draw& draw);
  /// How many of `size` tokens that the modules have not kept are fed to them before a draft of
  /// `count` ones is drawn behind the others; nothing where none can be drawn.
  std::optional<int64_t> fed_before(int64_t size, int64_t count,
                                    const ModuleDrawing::CanDraw& can_draw) const;
  /// Where there are features to begin with that no draft has begun with: a device that drew
  /// nothing leaves some, and the draft goes on level by level.
  bool expands_on_device() override;
  ForwardResult expand_on_device(const Draft& partial, std::span<const int64_t> frontier,
                                 const Tensor& tokens) override;
  const DraftVocabulary* vocabulary() const override {
    return modules_.front()->draft_vocabulary();
  }
  /// Forgets the pending nodes of all modules.
  void forget_pending();
  /// Feeds the target's features of what was committed since; root_ and newest_ are then those of
  /// the newest committed token.
  void catch_up(LogitsUse use);
  /// Feeds tokens to all modules, each with the features of the one before it.
  void feed_all(TokenSpan tokens, Tensor features, Logits scored, LogitsUse use = LogitsUse::kRows);
  /// Feeds and keeps tokens on a module: logits of the last one where `scored` is kLast, and its
  /// features [n, hidden], of which one module alone gives those of scored tokens only. Counts the
  /// time of the prompt.
  ForwardResult feed(size_t module, TokenSpan tokens, const Tensor& features, Logits scored,
                     LogitsUse use = LogitsUse::kRows);
  /// Nodes of one draft that are evaluated together.
  struct Frontier {
    const Draft& partial;
    std::span<const int64_t> nodes;
    Tensor tokens;  ///< of expand_on_device
    LogitsUse use = LogitsUse::kRows;
  };
  /// The nodes' logits, beside their sampler where they are kept.
  ForwardResult evaluate(const Frontier& frontier);
  /// Evaluates those of the nodes that the module has to see; fills `logits` where it says the
  /// distribution. Returns the sampler of kept ones.
  std::shared_ptr<DeviceSampler> evaluate(size_t module, const Frontier& frontier,
                                          std::vector<Tensor>& logits);
  /// The feature that a node's token is fed with; undefined when there is none.
  Tensor feature_before(size_t module, const Draft& partial, int64_t node) const;
  size_t draft_module(int64_t depth) const;

  std::vector<std::unique_ptr<LanguageModel>> modules_;
  FeatureDrafterOptions options_;
  TargetFeatures target_features_;
  TokenSpan committed_;               // of the draft in progress
  double* prompt_seconds_ = nullptr;  // the same
  // [modules] features [1, hidden] at the newest committed token. After a draft that a device drew
  // by several modules the last one is undefined, and the others lie where the next draft writes
  // its own.
  std::vector<Tensor> newest_;
  // Logits [1, vocab] after it; undefined after a draft that a device drew.
  ForwardResult root_;
  std::vector<Node> nodes_;  // of the draft in progress
};

}  // namespace specdec
