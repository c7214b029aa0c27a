#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "core/draft.h"

namespace specdec {

/// What may follow a place in a table of what was seen.
struct Follower {
  Token token = 0;
  double weight = 0.0;  ///< estimated probability, given the place; above 0
  int64_t place = 0;    ///< place in the table after the token
};

/// The best followers of a place, at most `count`, the best first.
using Followers = std::function<std::vector<Follower>(int64_t place, int64_t count)>;

struct BestFirstLimits {
  int64_t max_tokens = 0;
  int64_t max_depth = 0;
  int64_t max_branches = 1;  ///< 1 grows a chain
  double min_weight = 0.0;   ///< least weight of a path, the product of its tokens' weights
};

struct GrownDraft {
  Draft draft;
  double score = 0.0;  ///< sum of the nodes' path weights: how many tokens should be accepted
};

/// Grows a draft from a table deterministically: always adds the token whose path has the largest
/// product of weights; of equals the one found first.
GrownDraft grow_best_first(Token root, int64_t place, const BestFirstLimits& limits,
                           const Followers& followers);

}  // namespace specdec
