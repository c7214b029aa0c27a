#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "core/drafting_heads.h"
#include "core/drawn_chain.h"
#include "core/drawn_tree.h"
#include "core/transformer/forward_graphs.h"
#include "core/transformer/heads/feature_model.h"
#include "core/transformer/step_memory.h"

namespace specdec {

/// Chains and trees of several modules of a head (DeepSeek-V3, arXiv:2412.19437), drawn on their
/// device behind what the modules keep. Committed tokens are fed to all modules first, each with
/// the features of the module before it. A node of depth j is fed to module j and those after it,
/// of which the last one is fed its own feature of the node's parent, each other one that of the
/// module before it; the first of them says what follows the node. All of it is one graph.
class ModuleDrafts {
 public:
  /// Borrows the modules, at least two, which share their ops; InternalError if not. `graphs`:
  /// drafts that are kept.
  ModuleDrafts(std::vector<FeatureModel*> modules, int64_t graphs);

  /// Whether a graph can hold a chain or a tree of so many tokens behind `fed` ones: for each
  /// module its nodes. A tree's root takes one more place of memory that does not move, so one of
  /// ResultMemory::kMostRows tokens is never held.
  bool can_draw_chain(int64_t fed, int64_t count) const;
  bool can_draw_tree(int64_t fed, int64_t count) const;
  /// Drafts a chain behind tokens that are fed to row 0 of all modules, where it can; reads it back
  /// at once. Nothing, and nothing is pending, where the logits are damaged, where a module's cache
  /// has to bring pages first or holds fewer, and the first time that such a graph is asked for:
  /// drafts of many sizes would else run op by op. The tokens are pending else, and behind them
  /// those drafted ones that a module evaluated.
  std::optional<DrawnChain> draw_chain(const ChainRequest& chain, const FedModules& fed);
  /// Drafts a tree as draw_chain does a chain. Its nodes with children are pending then: level by
  /// level, those of a module as deep as it is fed.
  std::optional<DrawnTree> draw_tree(const TreeRequest& tree, const FedModules& fed);
  /// How many drafts ran as graphs.
  const GraphCounts& graph_counts() const { return graphs_.counts(); }

 private:
  /// InternalError where no draft of `count` tokens can be drawn, or modules lack something.
  void check_fed(const FedModules& fed, int64_t count, bool can_draw) const;
  /// Steps of a draft whose nodes a module is fed, of those that feed drafted tokens.
  int64_t fed_steps(size_t module, int64_t steps) const;
  /// False, and nothing is pending, where no graph can hold the draft now, or not yet; nothing is
  /// pending either where it throws.
  bool run(const DraftSteps& steps, const FedModules& fed);
  /// Makes room in each module for what it is fed. False where one's pages are not all in memory;
  /// nothing is pending then, nor where it throws.
  bool begin_steps(const DraftSteps& steps, TokenSpan fed, GraphKey& key);
  /// Undoes what begin_steps did in the first `modules` of them.
  void undo_steps(size_t modules);
  /// Copies what is fed to where graphs read it.
  void place(const FedModules& fed);
  /// What read() says: the modules' newest features are those of the draft where it was drawn, and
  /// those before it, with nothing pending, where it was not or read() throws.
  template <class Read>
  std::invoke_result_t<Read> finish(const Read& read, const FedModules& fed);
  /// Newest features and pending tokens as they were before the graph ran.
  void undo_draft();
  /// Feeds the tokens to all modules: the features [n, hidden] after them of each but the last one,
  /// whose features nobody reads.
  std::vector<Tensor> feed();
  /// Feeds all tokens, draws, and feeds drafted ones: calls ops only.
  void draw(const DraftSteps& steps);
  /// Memory of the device for features [1, hidden] like one, of each module but the last one.
  std::vector<Tensor> single_features(const Tensor& like) const;

  std::vector<FeatureModel*> modules_;
  Ops& ops_;
  ForwardGraphs graphs_;
  StepMemories memories_;         ///< of what modules are fed with
  StepMemory* memory_ = nullptr;  ///< of the draft in progress
  Tensor placed_;                 ///< [n, hidden] the target's features there
  /// [modules - 1] features at the newest token that the modules keep, and at the one that they
  /// kept before the newest draft. The last module's are fed to none.
  std::vector<Tensor> newest_, earlier_;
};

}  // namespace specdec
