#include "decoders/verifiers/synthetic.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "decoders/verifiers/probs.h"

namespace specdec {

SyntheticVerifier::SyntheticVerifier(std::vector<double> acceptance)
    : acceptance_(std::move(acceptance)) {
  if (acceptance_.empty()) {
    throw ConfigError("synthetic needs an acceptance probability, or a list of them by depth");
  }
  for (const double probability : acceptance_) {
    if (!(probability >= 0.0 && probability <= 1.0)) {
      throw ConfigError(
          fmt::format("synthetic accepts with probabilities from 0 to 1, not {}", probability));
    }
  }
}

VerifyResult SyntheticVerifier::verify(const Draft& draft, TargetProbs& target,
                                       int64_t /*position*/, Randomness& random) const {
  check_probs(draft, target);
  VerifyResult result{.path = {0}};
  while (true) {
    const int64_t node = result.path.back();
    const std::vector<int64_t> children = draft.children(node);
    const size_t depth = std::min(result.path.size(), acceptance_.size());
    if (children.empty() || !random.bernoulli(acceptance_[depth - 1])) {
      result.next = target.draw(node, random);
      return result;
    }
    result.path.push_back(children.front());
  }
}

}  // namespace specdec
