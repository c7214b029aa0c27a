#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "core/device_sampler.h"
#include "core/draft_vocabulary.h"
#include "core/drawn_chain.h"
#include "core/drawn_tree.h"
#include "core/forward.h"
#include "core/language_model.h"

/// What drafters ask of heads that are no language models: functions, which core/transformer/heads/
/// fills and tests write by hand.
namespace specdec {

/// Committed tokens that several modules have yet to be fed.
struct FedModules {
  TokenSpan tokens;  ///< at least one
  Tensor features;   ///< [n, hidden] of the target at the tokens before them
  /// [modules] of each but the last one its feature [1, hidden] at the newest token that it keeps.
  /// Where a draft is drawn, they become those at the last of `tokens`, in memory that the next
  /// draft overwrites; the last one is undefined then.
  std::span<Tensor> newest;
};

/// Drafts chains and trees of several modules on their device, which wait for nothing in between,
/// behind tokens that are fed to all modules. These are pending then, and drafted ones behind them.
/// Nothing, and nothing is pending, where the logits are damaged, or no graph can hold the draft
/// now.
struct ModuleDrawing {
  /// Whether a chain or a tree of `count` tokens can be drawn behind `fed` ones; empty = none can.
  using CanDraw = std::function<bool(int64_t fed, int64_t count)>;
  CanDraw can_draw_chain = {};
  CanDraw can_draw_tree = {};
  std::function<std::optional<DrawnChain>(const ChainRequest& chain, const FedModules& fed)>
      draw_chain = {};
  std::function<std::optional<DrawnTree>(const TreeRequest& tree, const FedModules& fed)>
      draw_tree = {};
};

/// Heads on the target's last hidden state, after the final norm.
struct MedusaHeads {
  int64_t count = 0;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  /// Logits [1, vocab] of head `index`, which says the token index + 2 places after the one whose
  /// hidden state [1, hidden] it is given.
  std::function<ForwardResult(const Tensor& hidden, int64_t index)> logits;
  /// The same logits on the heads' device, beside its sampler; empty = the host draws.
  std::function<ForwardResult(const Tensor& hidden, int64_t index)> device_logits = {};
  /// Drafts a chain of up to `count` tokens on the heads' device; nothing where the logits are
  /// damaged. Empty = it is drawn token by token.
  std::function<std::optional<DrawnChain>(const ChainRequest& chain, const Tensor& hidden)>
      draw_chain = {};
  /// Drafts a tree on the heads' device, not deeper than there are heads; nothing where the logits
  /// are damaged. Empty = it grows level by level.
  std::function<std::optional<DrawnTree>(const TreeRequest& tree, const Tensor& hidden)> draw_tree =
      {};
  /// The tokens that have logits, when these are not all: [1, columns] then.
  std::optional<DraftVocabulary> vocabulary = {};
};

/// A head that reads the target's keys and values and keeps none of its own.
struct AssistantSteps {
  int64_t hidden_size = 0;  ///< of the target
  int64_t vocab_size = 0;
  int64_t older_keys = 0;  ///< that its sliding layers see beyond the target's windows
  struct Step {
    Tensor logits;                                ///< [n, vocab]
    Tensor hidden;                                ///< [n, hidden] of the steps after
    ReadBacks read_backs = {};                    ///< copies of these two to the host
    std::shared_ptr<DeviceSampler> sampler = {};  ///< of device_step
  };
  /// One step of n nodes, from their tokens' embeddings [n, hidden] as the target's first layer
  /// sees them and the hidden states [n, hidden] before them, over the kept tokens of the target's
  /// row 0.
  std::function<Step(const Tensor& embeddings, const Tensor& hidden, const Internals& target)> step;
  /// `step` with its results on the head's device, beside its sampler; empty = the host draws.
  std::function<Step(const Tensor& embeddings, const Tensor& hidden, const Internals& target)>
      device_step = {};
  /// Drafts a chain of such steps on the head's device, which begins with a token and the hidden
  /// state [1, hidden] before it; nothing where the logits are damaged. Empty = it is drawn step by
  /// step.
  std::function<std::optional<DrawnChain>(const ChainRequest& chain, Token token,
                                          const Tensor& hidden, const Internals& target)>
      draw_chain = {};
  /// Drafts a tree of such steps on the head's device; nothing where the logits are damaged. Empty
  /// = it grows level by level.
  std::function<std::optional<DrawnTree>(const TreeRequest& tree, Token token, const Tensor& hidden,
                                         const Internals& target)>
      draw_tree = {};
};

}  // namespace specdec
