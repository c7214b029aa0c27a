#pragma once
#include <vector>

#include "core/draft.h"
#include "decoders/verifier.h"

namespace specdec {

/// Running estimates of the probability that a drafter's best, second best, ... token is accepted,
/// once its parent is: decaying counts on top of a first guess. Those of a rank decay with the
/// drafts that try it, so an estimate stays where it is while nothing is learned about it.
class RankAcceptance {
 public:
  /// `first_guess`: by rank; it counts as much as `weight` observations. `memory`: weight of a
  /// rank's past, each observed draft that tried the rank.
  RankAcceptance(std::vector<double> first_guess, double weight, double memory);

  /// By rank; they never increase, and their sum is at most 1.
  std::vector<double> probabilities() const;
  /// Only what children of accepted nodes came to says something.
  void observe(const Draft& draft, const VerifyResult& result);
  /// Back to the first guess.
  void forget();
  /// What was learned becomes a guess: it counts no more than the first one did.
  void weaken();

 private:
  std::vector<double> first_guess_;
  double weight_;
  double memory_;
  std::vector<double> tried_;     // [rank] decaying counts
  std::vector<double> accepted_;  // [rank]
};

}  // namespace specdec
