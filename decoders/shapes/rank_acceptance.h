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
  /// Begins with `first_guess`, by rank, which counts as much as `weight` observations. `memory`:
  /// weight of a rank's past, each observed draft that tried the rank.
  RankAcceptance(std::vector<double> first_guess, double weight, double memory);

  /// Estimates by rank; they never increase, and their sum is at most 1.
  std::vector<double> probabilities() const;
  /// Learns from what children of accepted nodes came to; the others say nothing.
  void observe(const Draft& draft, const VerifyResult& result);
  /// Goes back to the first guess.
  void forget();
  /// Makes a guess of what was learned: it counts no more than the first one did.
  void weaken();

 private:
  std::vector<double> first_guess_;
  double weight_;
  double memory_;
  std::vector<double> tried_;     // [rank] decaying counts
  std::vector<double> accepted_;  // [rank]
};

}  // namespace specdec
