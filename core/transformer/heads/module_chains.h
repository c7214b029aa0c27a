#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/drawn_chain.h"
#include "core/transformer/forward_graphs.h"
#include "core/transformer/heads/feature_model.h"

namespace specdec {

/// Chains of several modules of a head (DeepSeek-V3, arXiv:2412.19437), drawn on their device
/// behind what the modules keep. Token j is fed to module j and those after it, of which the last
/// one is fed its own feature of the token before, each other one that of the module before it;
/// the first of them says the next token. All of it is a graph but the first token.
class ModuleChains {
 public:
  /// Borrows the modules, at least two, which share their ops; InternalError if not. `graphs`:
  /// chains that are kept.
  ModuleChains(std::vector<FeatureModel*> modules, int64_t graphs);

  /// Whether a graph can hold a chain of so many tokens: for each module its nodes.
  bool can_draw(int64_t count) const;
  /// Drafts one, where it can, by the logits [1, vocab] after the newest kept token and the
  /// features [1, hidden] there, of each module; reads it back at once. Nothing where the logits
  /// are damaged; nothing, and nothing is pending, where a module's cache has to bring pages first
  /// or holds fewer. The drafted tokens are pending in the modules that evaluated them.
  std::optional<DrawnChain> draw(const ChainRequest& chain, const Tensor& logits,
                                 std::span<const Tensor> features);
  /// How many chains ran as graphs.
  const GraphCounts& graph_counts() const { return graphs_.counts(); }

 private:
  /// Tokens of a chain that a module is fed.
  int64_t steps_of(size_t module, int64_t count) const;
  /// Makes room in each module for what it is fed. False where one's pages are not all in memory;
  /// nothing is pending then, nor where it throws.
  bool begin_steps(int64_t count, GraphKey& key);
  /// Feeds all drafted tokens, from the first one on, and draws the others: calls ops only.
  void draw_behind(const Tensor& first, int64_t count, ChainDrawing& drawing);

  std::vector<FeatureModel*> modules_;
  Ops& ops_;
  ForwardGraphs graphs_;
  std::vector<Tensor> roots_;  ///< [modules] features at the newest kept token, where graphs read
};

}  // namespace specdec
