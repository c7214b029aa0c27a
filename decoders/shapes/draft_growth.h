#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decoders/draft_grammar.h"
#include "decoders/drafter.h"

namespace specdec {

/// A token that may follow a node, by a drafter's distribution.
struct Candidate {
  Token token = 0;
  double probability = 0.0;
};

/// A draft under construction: what every DraftShape grows it with. Turns logits into the drafter's
/// distribution under the request's sampling and the grammar, finds siblings in it, and records the
/// distributions that were drawn from.
class DraftGrowth {
 public:
  /// `context` and `distribution` outlive the object.
  DraftGrowth(const DraftContext& context, ChildDistribution& distribution, Siblings siblings);

  const Draft& draft() const { return draft_; }
  /// Asks the drafter for what follows each of the `nodes`: logits [k, vocab] on the CPU.
  Tensor expand(std::span<const int64_t> nodes);
  /// Adds up to `count` children of `node`, drawn or best; fewer when the distribution gives no
  /// more tokens any mass. Returns the first one's index; the others follow it.
  int64_t add_children(int64_t node, const Tensor& logits, int64_t count);
  /// Adds a child found deterministically.
  int64_t add(Token token, int64_t node) { return draft_.add(token, node); }
  /// The `count` most likely tokens after `node`, best first.
  std::vector<Candidate> best(int64_t node, const Tensor& logits, int64_t count);
  /// The drafter's distribution of the token after `node`; changes with the next call.
  std::span<const double> distribution(int64_t node, const Tensor& logits);
  /// Whether siblings are drawn here: asked for, and the target samples.
  bool draws() const { return draws_; }
  /// The draft; the object is used up.
  Draft finish() &&;

 private:
  /// The grammar's filter of the tokens after `node`; holds until the next call.
  ScoreFilter filter(int64_t node);
  /// The drafter's distribution after `node`, in distribution_.
  void fill_distribution(int64_t node, const Tensor& logits);
  /// Keeps distribution_ as the one that the node's children are drawn from.
  void record_distribution(int64_t node);

  const DraftContext& context_;
  ChildDistribution& child_distribution_;
  bool draws_;
  Draft draft_;
  std::vector<Tensor> distributions_;  // each [vocab] float64
  std::vector<double> distribution_;
  std::optional<DraftGrammar> grammar_;
  TokenMask mask_;  // of the node in question
};

}  // namespace specdec
