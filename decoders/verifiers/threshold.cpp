#include "decoders/verifiers/threshold.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "decoders/verifiers/probs.h"

namespace specdec {
namespace {

/// The children of one node, tried in order.
class ThresholdTrial {
 public:
  ThresholdTrial(TokenProbs target, const ThresholdOptions& options)
      : rest_(std::move(target)), options_(options), left_(options.acc) {}

  bool accepts(Token token, Randomness& random) {
    const double mass = rest_[token];  // 0 the second time: it was refused before
    // One uniform number for all siblings: given that it was above the mass so far, the probability
    // that it is within this one's.
    if (mass > 0.0 &&
        (mass >= options_.single || mass >= left_ || random.bernoulli(mass / left_))) {
      return true;
    }
    left_ -= mass;
    rest_ = rest_.without(token);
    // Nothing is left to draw only when rounding alone made the refusal possible.
    return !(rest_.sum() > 0.0);
  }

  /// The target's distribution without the refused tokens, not normalised.
  const TokenProbs& rest() const { return rest_; }

 private:
  TokenProbs rest_;
  ThresholdOptions options_;
  double left_;  // of `acc`
};

}  // namespace

ThresholdVerifier::ThresholdVerifier(const ThresholdOptions& options) : options_(options) {
  if (!(options.single > 0.0 && options.single <= 1.0 && options.acc > 0.0 && options.acc <= 1.0)) {
    throw ConfigError(fmt::format("threshold needs single and acc above 0, up to 1, not {} and {}",
                                  options.single, options.acc));
  }
}

VerifyResult ThresholdVerifier::verify(const Draft& draft, TargetProbs& target,
                                       int64_t /*position*/, Randomness& random) const {
  check_probs(draft, target);
  VerifyResult result{.path = {0}};
  while (true) {
    const int64_t node = result.path.back();
    ThresholdTrial trial(target.after(node), options_);
    const std::vector<int64_t> children = draft.children(node);
    const auto accepted = std::find_if(children.begin(), children.end(), [&](int64_t child) {
      return trial.accepts(draft.tokens[static_cast<size_t>(child)], random);
    });
    if (accepted == children.end()) {
      result.next = trial.rest().draw(random);
      return result;
    }
    result.path.push_back(*accepted);
  }
}

}  // namespace specdec
