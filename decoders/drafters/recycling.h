#pragma once
#include <unordered_map>
#include <vector>

#include "decoders/drafter.h"

namespace specdec {

struct RecyclingOptions {
  int64_t candidates = 8;  ///< successors kept of each token: the k of the paper
  /// Keep the table from one request to the next, as the paper does. What is drafted, and so the
  /// speed, then depends on the requests before: a resumed run begins with an empty table.
  bool persist = false;
};

/// Token recycling (Luo et al., 2024, arXiv:2408.08696): remembers, for each token, the most likely
/// tokens after the last place where the target has seen it, accepted or not, and drafts a tree
/// from that table without a model.
///
/// The paper's static tree of 80 nodes is nearly the set of paths whose ranks have the smallest
/// product, with a price for depth: a node of rank r (0 = most likely) weighs 0.65 / (r + 1), and
/// the best paths are taken. With 80 nodes and 8 candidates 69 of them are the paper's. Any number
/// of nodes has its tree so; where no branches are allowed it is a chain. Of two places of a token
/// in one draft an accepted one counts. The prompt's logits are not recycled: a target gives only
/// its last token's.
class RecyclingDrafter final : public Drafter {
 public:
  /// Throws ConfigError when candidates is below 1.
  explicit RecyclingDrafter(const RecyclingOptions& options = {});
  Needs needs() const override { return {.logits = true}; }
  void reset() override;
  void forget() override { table_.clear(); }
  void skip(const DraftContext& context) override;
  Draft propose(const DraftContext& context) override;

 private:
  /// Takes the most likely tokens at all nodes of a verified draft into the table.
  void learn(const StepResult& step);

  RecyclingOptions options_;
  std::unordered_map<Token, std::vector<Token>> table_;  // most likely first
};

}  // namespace specdec
