#pragma once
#include <cstdint>
#include <vector>

#include "decoders/draft_shape.h"
#include "decoders/drafter.h"

namespace specdec {

/// Grows the drafts of all beams of a step together, as a beam search under the drafter's
/// distribution: on each level it keeps the `width` most likely nodes over all beams, each scored
/// by the log-probability of its beam plus the drafter's of its path. One level of nodes is what
/// the drafter expects the running beams to be. Nodes are found deterministically.
class BeamShape final : public DraftShape {
 public:
  /// Levels below the roots, and nodes a level; both at least 1.
  BeamShape(int64_t depth, int64_t width);

  /// A step begins: no beam has a draft. Tokens in `ends` are not drafted: a hypothesis that ends
  /// does not run on.
  void begin_step(std::vector<Token> ends);
  /// The next grow is for a beam of this log-probability.
  void begin_beam(double log_prob);
  /// A draft with the scores of its nodes, for `prune`.
  struct Scored {
    Draft draft;
    std::vector<double> scores = {};  ///< [n], or empty: not grown here
  };
  /// Adds scores to the beam's `draft`, when it is the one that the beam's grow made. A drafter may
  /// grow a draft and then return another one: it has no scores, and is not pruned.
  Scored scored(Draft draft);
  /// Drops the nodes that are not among the best of their level over all beams of the step.
  Draft prune(const Scored& grown) const;

  DraftLimits next(int64_t context) override;
  Draft grow(const DraftContext& context, ChildDistribution& distribution,
             Siblings siblings) override;
  bool allows_drawn() const override { return false; }

 private:
  /// Notes a node's score in grown_levels_ when it is among the best of its level so far.
  bool admit(int64_t level, double score);
  bool is_among_best(int64_t level, double score) const;

  int64_t depth_;
  int64_t width_;
  std::vector<Token> ends_;
  double log_prob_ = 0.0;                          // of the beam
  std::vector<std::vector<double>> levels_;        // best scores so far of each level, descending
  std::vector<std::vector<double>> grown_levels_;  // the same with the newest draft
  Scored grown_;                                   // the newest draft
};

}  // namespace specdec
