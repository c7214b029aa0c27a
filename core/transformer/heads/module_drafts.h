#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/drawn_chain.h"
#include "core/drawn_tree.h"
#include "core/transformer/forward_graphs.h"
#include "core/transformer/heads/feature_model.h"

namespace specdec {

/// What modules of a head say about the newest kept token.
struct ModuleRoot {
  const Tensor& logits;              ///< [1, vocab] of the first one
  std::span<const Tensor> features;  ///< [1, hidden] of each
};

/// Chains and trees of several modules of a head (DeepSeek-V3, arXiv:2412.19437), drawn on their
/// device behind what the modules keep. A node of depth j is fed to module j and those after it, of
/// which the last one is fed its own feature of the node's parent, each other one that of the
/// module before it; the first of them says what follows the node. All of it is a graph but the
/// tokens of depth 1.
class ModuleDrafts {
 public:
  /// Borrows the modules, at least two, which share their ops; InternalError if not. `graphs`:
  /// drafts that are kept.
  ModuleDrafts(std::vector<FeatureModel*> modules, int64_t graphs);

  /// Whether a graph can hold a draft of so many tokens: for each module its nodes.
  bool can_draw(int64_t count) const;
  /// Drafts a chain, where it can; reads it back at once. Nothing where the logits are damaged;
  /// nothing, and nothing is pending, where a module's cache has to bring pages first or holds
  /// fewer, and the first time that such a graph is asked for: drafts of many sizes would else run
  /// op by op. The drafted tokens are pending in the modules that evaluated them.
  std::optional<DrawnChain> draw_chain(const ChainRequest& chain, const ModuleRoot& root);
  /// Drafts a tree as draw_chain does a chain. Its nodes with children are pending then: level by
  /// level, those of a module as deep as it is fed. A tree of 64 tokens or more gives nothing, and
  /// nothing is pending.
  std::optional<DrawnTree> draw_tree(const TreeRequest& tree, const ModuleRoot& root);
  /// How many drafts ran as graphs.
  const GraphCounts& graph_counts() const { return graphs_.counts(); }

 private:
  /// Steps of a draft whose nodes a module is fed, of those that feed drafted tokens.
  int64_t fed_steps(size_t module, int64_t steps) const;
  /// False, and nothing is pending, where no graph can hold the draft now, or not yet; nothing is
  /// pending either where it throws.
  bool run(const DraftSteps& steps, const ModuleRoot& root);
  /// Makes room in each module for what it is fed. False where one's pages are not all in memory;
  /// nothing is pending then, nor where it throws.
  bool begin_steps(const DraftSteps& steps, GraphKey& key);
  /// Undoes what begin_steps did in the first `modules` of them.
  void undo_steps(const DraftSteps& steps, size_t modules);
  void copy_roots(const ModuleRoot& root);
  /// Feeds all drafted tokens, from the first ones on, and draws the others: calls ops only.
  void draw_behind(const Tensor& first, const DraftSteps& steps);

  std::vector<FeatureModel*> modules_;
  Ops& ops_;
  ForwardGraphs graphs_;
  std::vector<Tensor> roots_;  ///< [modules] features at the newest kept token, where graphs read
};

}  // namespace specdec
