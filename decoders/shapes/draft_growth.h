#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "decoders/draft_grammar.h"
#include "decoders/drafter.h"

namespace specdec {

/// A draft under construction: what every DraftShape grows it with. Turns logits into the drafter's
/// distribution under the request's sampling and the grammar, finds siblings in it, and records the
/// distributions that were drawn from. Two children of every node, level by level:
///
///     DraftGrowth growth(context, distribution, siblings);
///     std::vector<int64_t> level = {0};
///     while (!level.empty()) {
///       growth.expand(level);
///       std::vector<int64_t> next;
///       for (const int64_t node : level) {
///         const std::vector<int64_t> children = growth.add_children(node, 2);
///         next.insert(next.end(), children.begin(), children.end());
///       }
///       level = next;
///     }
///     return std::move(growth).finish();
///
/// It stays within the context by itself: nodes that would be deeper than max_depth, more of them
/// than max_tokens, and evaluations beyond max_evaluated are left out, before anything is evaluated
/// or drawn. A node that was not evaluated has no children; so the loop above ends.
class DraftGrowth {
 public:
  /// Borrows `context` and `distribution`, which outlive the object.
  DraftGrowth(const DraftContext& context, ChildDistribution& distribution, Siblings siblings);
  /// One for shapes that find more nodes than they keep, which is lossless only for the best ones:
  /// any number may be found, and finish(nodes) keeps some.
  static DraftGrowth of_candidates(const DraftContext& context, ChildDistribution& distribution);

  const Draft& draft() const { return draft_; }
  /// True where siblings are drawn at random: that was asked for, and the target samples.
  bool draws() const { return draws_; }
  /// Nodes that can still be added.
  int64_t room() const { return max_tokens_ - draft_.proposed(); }
  /// Nodes, beside the root, that can still be evaluated.
  int64_t evaluations_left() const { return evaluations_left_; }

  /// Asks the drafter, in one call, for what follows each of the `nodes`, in order of preference;
  /// each node once. Those that can have no children any more are left out. `candidates`: no more
  /// best tokens than these are read after each of the nodes, and nothing else; a device can then
  /// find them. 0 = anything may be read.
  void expand(std::span<const int64_t> nodes, int64_t candidates = 0);
  /// What the drafter said about an expanded node, [vocab], unprocessed; undefined for another one.
  Tensor logits(int64_t node) const;
  /// Adds up to `count` children of an expanded node, drawn or best, and returns them; fewer when
  /// no more fit, or the distribution gives no more tokens any mass.
  std::vector<int64_t> add_children(int64_t node, int64_t count);
  /// Adds the whole chain behind the root, as long as it may be, where the drafter's device draws
  /// it: the tokens that expand and add_children would find one by one. Under a grammar each is
  /// read before the next, whose mask it decides. False, and nothing is added, where the host
  /// draws: under a bias or a penalty, and for random numbers that the host alone knows.
  bool add_drawn_chain();
  /// Adds a whole tree behind the root, where the drafter's device draws it: nodes, within the
  /// limits, by `parents` and `ranks` as a TreeRequest has them. Those that add_children and best
  /// would not find are left out. Under a grammar each level is read before the next. False as
  /// add_drawn_chain.
  bool add_drawn_tree(std::span<const int64_t> parents, std::span<const int64_t> ranks);
  /// Adds a child that the shape found in `best`, and returns it; -1 when none fits.
  int64_t add(Token token, int64_t node);
  /// The `count` most likely tokens after an expanded node, best first; none after another one.
  std::vector<Candidate> best(int64_t node, int64_t count);
  /// The drafter's distribution of the token after an expanded node. Empty after another one, where
  /// grammar and bias leave none of the drafter's tokens, and where the grammar is at a limit.
  TokenProbs distribution(int64_t node);

  /// The draft; the object is used up.
  Draft finish() &&;
  /// A draft of some of the candidates, in ascending order, each with its parent.
  Draft finish(std::span<const int64_t> nodes) &&;

 private:
  bool is_expanded(int64_t node) const;
  /// True when there is a distribution of the token after the node.
  bool has_distribution(int64_t node);
  bool may_have_children(int64_t node) const;
  /// What the grammar allows after `node`.
  AllowedTokens allowed(int64_t node);
  LogitRow row(int64_t node) const;
  TokenProbs probs(int64_t node, const SamplingParams& sampling);
  /// Whether logits are processed as they are but for sampling and grammar.
  bool is_plain() const;
  bool may_draw_on_device() const;
  /// Whether a device finds the best tokens that are read of this draft.
  bool may_rank_on_device(int64_t candidates) const;
  /// Reads the best tokens after the nodes by logits on a device. False, and nothing is read, where
  /// these are damaged.
  bool rank(std::span<const int64_t> nodes, const ForwardResult& found, int64_t candidates);
  /// The numbers that a device draws with; none where siblings are best tokens.
  std::optional<DeviceRandomness> device_random() const;
  /// Has a device find the tokens of a tree level by level; none where it cannot. `levels`:
  /// branching_nodes of its parents.
  std::optional<DrawnTree> draw_levels(const TreeRequest& request,
                                       const std::vector<std::vector<int64_t>>& levels);
  /// Whether draw_levels may be asked for a tree of so many nodes beside the root.
  bool may_draw_levels(int64_t proposed, const std::vector<std::vector<int64_t>>& levels);
  TreeRequest tree_request(std::span<const int64_t> parents, std::span<const int64_t> ranks) const;
  /// Adds the nodes that are there of a tree. False, and nothing is added, where none was drawn.
  bool add_nodes(const TreeRequest& request, const std::optional<DrawnTree>& found);
  /// What the penalties of the token after `node` look at.
  std::vector<Token> penalised(int64_t node) const;
  std::vector<int64_t> draw_children(int64_t node, int64_t count);

  const DraftContext& context_;
  ChildDistribution& child_distribution_;
  bool draws_;
  int64_t max_tokens_;
  int64_t evaluations_left_;
  Draft draft_;
  std::vector<int64_t> depths_ = {0};
  struct Expanded {
    Tensor logits;  // of several nodes; undefined = not expanded, or the best tokens alone are read
    int64_t row = 0;
    std::optional<std::vector<Candidate>> best = {};
  };
  std::vector<Expanded> logits_;  // [node]
  bool ranks_on_device_ = false;
  std::optional<DraftGrammar> grammar_;
};

}  // namespace specdec
