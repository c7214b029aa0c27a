#include "decoders/verifiers/typical.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/error.h"
#include "decoders/verifiers/probs.h"

namespace specdec {
namespace {

double entropy(const TokenProbs& distribution) {
  double sum = 0.0;
  distribution.visit([&sum](std::span<const double> part) {
    for (const double mass : part) {
      sum -= mass > 0.0 ? mass * std::log(mass) : 0.0;
    }
  });
  return sum;
}

/// How good it is to end at a node: its depth, then the likelihood of its path.
using Rank = std::pair<int64_t, double>;

}  // namespace

TypicalVerifier::TypicalVerifier(const TypicalOptions& options) : options_(options) {
  if (!(options.epsilon > 0.0 && options.epsilon <= 1.0 && options.delta > 0.0 &&
        options.delta <= 1.0)) {
    throw ConfigError(fmt::format("typical needs epsilon and delta above 0, up to 1, not {} and {}",
                                  options.epsilon, options.delta));
  }
}

VerifyResult TypicalVerifier::verify(const Draft& draft, TargetProbs& target, int64_t /*position*/,
                                     Randomness& random) const {
  check_probs(draft, target);
  const auto nodes = static_cast<size_t>(draft.size());
  std::vector<double> thresholds(nodes, 0.0);  // of a node's children; 0 = not known yet
  std::vector<Rank> ranks(nodes, {-1, 0.0});   // -1 = not accepted
  ranks[0] = {0, 1.0};
  for (size_t node = 1; node < nodes; ++node) {
    const auto parent = static_cast<size_t>(draft.parents[node]);
    if (ranks[parent].first < 0) {
      continue;
    }
    const TokenProbs& distribution = target.after(draft.parents[node]);
    if (thresholds[parent] == 0.0) {
      thresholds[parent] =
          std::min(options_.epsilon, options_.delta * std::exp(-entropy(distribution)));
    }
    const double mass = distribution[draft.tokens[node]];
    if (mass > 0.0 && mass >= thresholds[parent]) {
      ranks[node] = {ranks[parent].first + 1, ranks[parent].second * mass};
    }
  }
  const int64_t node = std::max_element(ranks.begin(), ranks.end()) - ranks.begin();
  return {.path = draft.path_to(node), .next = target.draw(node, random)};
}

}  // namespace specdec
