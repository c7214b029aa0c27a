#pragma once
#include <cstdint>
#include <vector>

#include "core/scores.h"
#include "core/token_probs.h"

namespace specdec {

/// Top-k, top-p and min-p: which tokens a distribution is cut to. They are found among the scores
/// above a threshold, which the largest scores of the blocks give: nothing of the vocabulary's size
/// is sorted or copied.
struct LikelyTokens {
  int64_t top_k = 0;   ///< the k most likely tokens; 0 = all
  double top_p = 1.0;  ///< the fewest of these whose mass reaches this share of theirs
  double min_p = 0.0;  ///< least mass of the rest, as a share of the best token's

  bool keeps_all(int64_t vocab_size) const;
  /// The tokens that are left, with their masses exp((score - best) * scale), not normalised. Equal
  /// masses at the border of top-k and top-p go to the lower token id.
  TokenProbs of(const Scores& scores, double scale) const;

 private:
  bool limits_count(int64_t vocab_size) const { return top_k > 0 && top_k < vocab_size; }
};

/// The tokens with the `count` highest logits, those first; of equal ones the lower id. Logits that
/// are no numbers come last.
std::vector<Token> highest_logits(const LogitRow& row, int64_t count);

}  // namespace specdec
