#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "decoders/decoding_strategy.h"

namespace specdec {

/// One place of a text. A: the tokens that the drafter rates above the target there.
struct BiasPlace {
  double mass = 0.0;    ///< p(A), by the target
  double excess = 0.0;  ///< q(A) - p(A): what the drafter gives A beyond that; the total variation
  bool taken = false;   ///< the text's token is in A
};

/// Sums over the tokens of texts that bound the mean total variation from below; they add up over
/// texts. B: A and the tokens to which the target gives no mass.
struct BiasSums {
  int64_t tokens = 0;     ///< after the first of each text, also where nothing was drafted
  int64_t taken = 0;      ///< tokens in B
  double expected = 0.0;  ///< sum of p(B) = p(A)
  double variance = 0.0;  ///< sum of p(B) (1 - p(B))
  double squares = 0.0;   ///< sum of (1[x in B] - p(B))^2

  void add(const BiasSums& other);
  /// The mean total variation a token is larger with this confidence; 0 = it may be lossless.
  double total_variation_bound(double confidence) const;
};

/// Test of whether texts lean towards what their drafter prefers: the sign of a verifier that lets
/// too much of the draft through, or too little.
///
/// A depends on the text before the place alone, so whoever wrote the text, if each of its tokens
/// has the target's distribution given those before it, then the sum of 1[x in A] - p(A) is a
/// martingale, whose variance is the sum of p(A) (1 - p(A)). Its square over the variance is
/// chi-square with one degree of freedom, whatever the depths and contexts. And since
/// |P(A) - p(A)| <= TV(P, p), the mean shift is no more than the mean total variation a token.
class DraftBias {
 public:
  DraftBias() = default;
  /// What was measured before.
  DraftBias(const BiasSums& sums, int64_t impossible, std::vector<BiasPlace> places)
      : sums_(sums), impossible_(impossible), places_(std::move(places)) {}

  /// A trace of depth 1: a deeper draft holds tokens of the text that a drafter could learn from,
  /// and then A would depend on what comes. The trace is along a text that the strategy itself drew
  /// with randomness of its own.
  void add(const DraftTrace& trace);
  /// Traces the text of `request` and adds the trace. False: the strategy has no drafter, or none
  /// that can be traced, since it needs a tree.
  bool add_text(DecodingStrategy& tracer, const Request& request, TokenSpan output);

  /// Tokens after the first of each text, which no draft decides.
  int64_t tokens() const { return sums_.tokens; }
  /// Tokens to which the target gives no mass.
  int64_t impossible() const { return impossible_; }
  /// Places at which the drafter had something to propose that the target may give.
  std::span<const BiasPlace> places() const { return places_; }
  int64_t taken() const;                              ///< tokens in A
  double expected() const { return sums_.expected; }  ///< sum of p(A)
  double variance() const { return sums_.variance; }  ///< sum of p(A) (1 - p(A))
  /// Infinite when there is an impossible token; 0 without variance.
  double statistic() const;
  double p_value() const;
  const BiasSums& sums() const { return sums_; }
  double total_variation_bound(double confidence) const {
    return sums_.total_variation_bound(confidence);
  }
  /// The total variation a token, shifted to or from A, that so many tokens find with probability
  /// `power`, when what is right is blamed with probability `false_positives`.
  double visible_total_variation(double false_positives, double power) const;

 private:
  BiasSums sums_;
  int64_t impossible_ = 0;
  std::vector<BiasPlace> places_;
};

}  // namespace specdec
