#pragma once
#include <optional>
#include <vector>

#include "decoders/analysis/cost_curve.h"
#include "decoders/shapes/rank_acceptance.h"
#include "decoders/shapes/rank_tree.h"

namespace specdec {

struct CostAwareOptions {
  int64_t max_nodes = 16;
  int64_t max_depth = 8;
  int64_t branches = 3;  ///< children of a node, at most; 1 = chains only
  /// First guess of the probabilities that the drafter's best, second best, ... token is accepted.
  /// It counts as much as `prior_weight` observations.
  std::vector<double> acceptance = {0.6, 0.12, 0.05};
  double prior_weight = 2.0;
  double memory = 0.97;  ///< weight of the past in the running estimates, each drafting step
  double margin = 0.03;  ///< a draft must promise this share more tokens a second than none
  /// Share of the time that may be lost by trying what does not seem to pay.
  double explore = 0.01;
  /// What was learned outlives a request, as a first guess for the next one, and so does what is
  /// left of the time to explore. The sizes of drafts, not the output, then depend on the requests
  /// before: a resumed run begins without them.
  bool persist = true;
  CostCurve target_cost = {};  ///< v(n)
  /// Cost of n nodes in one call; none = drafting is free.
  std::optional<CostCurve> drafter_cost = {};
};

/// Chooses depth and nodes of every draft so that it is expected to commit the most tokens a
/// second:
///
///     (1 + accepted(n, d)) / (v(1 + n) + d * c(n / d))
///
/// accepted(n, d): of the best tree of n nodes and d levels (OptimalTrees) by running estimates of
/// the probability that a child of each rank is accepted; v and c: measured cost curves of target
/// and drafter. When no draft beats plain decoding it decodes plainly, and tries single tokens as
/// far as it can afford them: what they are expected to lose by the curves, with all the tokens
/// that the drafter has not seen yet, comes out of `explore`.
class CostAwareShape final : public DraftShape {
 public:
  /// Throws ConfigError for options out of range.
  explicit CostAwareShape(CostAwareOptions options);
  void reset() override;
  DraftLimits next(int64_t context) override;
  Draft grow(const DraftContext& context, ChildDistribution& distribution,
             Siblings siblings) override;
  void observe(const Draft& draft, const VerifyResult& result) override;
  bool branches() const override { return options_.branches > 1; }

  /// Running estimates, by rank; they never increase.
  std::vector<double> acceptance() const { return acceptance_.probabilities(); }
  /// What is drafted next if no pause is due; the root alone = nothing pays.
  const RankTree& plan() const { return plan_; }

 private:
  static CostAwareOptions checked(CostAwareOptions options);
  void decide(int64_t context);
  double drafting_seconds(int64_t nodes, int64_t depth, int64_t context) const;
  /// What the drafter takes to see the tokens that it has not seen yet.
  double catch_up_seconds() const;

  CostAwareOptions options_;
  RankAcceptance acceptance_;
  double credit_ = 0.0;    // seconds that may be lost
  double plain_ = 0.0;     // seconds of a plain step, when it was decided last
  double trial_ = 0.0;     // what a single drafted token was then expected to lose
  double catch_up_ = 0.0;  // seconds of the drafter for a token that it has not seen
  RankTree plan_;
  bool decided_ = false;
  bool trying_ = false;       // the last draft was a trial
  int64_t drafts_ = 0;        // of this request
  int64_t observations_ = 0;  // drafting steps since the last decision
  int64_t context_ = 0;       // of the step in progress
  int64_t seen_ = 0;          // tokens of the context that the drafter has seen
};

}  // namespace specdec
