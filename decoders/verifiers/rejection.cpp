#include "decoders/verifiers/rejection.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "core/error.h"
#include "decoders/verifiers/probs.h"

namespace specdec {
namespace {

/// p and q at one node, while its children are tried one after the other.
class RejectionTrial {
 public:
  RejectionTrial(Probs target, std::optional<Probs> drafter) : target_(target) {
    if (drafter) {
      drafted_.assign(drafter->begin(), drafter->end());
      has_distribution_ = true;
    }
  }

  /// Decides about a child; a rejection leaves the residual distributions behind.
  bool accepts(Token token, Randomness& random) {
    const double mass = weight_of(distribution(), token);
    const double drafted = has_distribution_ ? weight_of(drafted_, token) : 1.0;
    SPECDEC_CHECK(
        drafted > 0.0,
        "token {} was drafted, but the distribution that it was drawn from gives it no mass: the "
        "draft's distributions are not the ones it was drawn from",
        token);
    return random.bernoulli(mass / drafted) || !reject(token);
  }

  /// What is left of the target's distribution.
  Probs distribution() const { return residual_.empty() ? target_ : Probs(residual_); }

 private:
  /// False when no mass would be left: a rejection that only rounding made possible.
  bool reject(Token token) {
    std::vector<double> rest =
        has_distribution_ ? residual(distribution(), drafted_) : residual(distribution(), token);
    if (has_distribution_) {
      drafted_[static_cast<size_t>(token)] = 0.0;
      normalise(drafted_);
    }
    if (!normalise(rest)) {
      return false;
    }
    residual_ = std::move(rest);
    return true;
  }

  Probs target_;
  std::vector<double> residual_;  // empty = nothing rejected yet
  std::vector<double> drafted_;
  bool has_distribution_ = false;
};

}  // namespace

VerifyResult RejectionVerifier::verify(const Draft& draft, TargetProbs& target,
                                       int64_t /*position*/, Randomness& random) const {
  check_probs(draft, target);
  VerifyResult result{.path = {0}};
  while (true) {
    const int64_t node = result.path.back();
    const int64_t distribution = draft.child_probs[static_cast<size_t>(node)];
    const std::vector<int64_t> children = draft.children(node);
    const bool drawn = distribution >= 0 && !children.empty();
    RejectionTrial trial(
        target.after(node),
        drawn ? std::optional<Probs>(row_of(draft.probs, distribution)) : std::nullopt);
    const auto accepted = std::find_if(children.begin(), children.end(), [&](int64_t child) {
      return trial.accepts(draft.tokens[static_cast<size_t>(child)], random);
    });
    if (accepted == children.end()) {
      result.next = static_cast<Token>(random.draw(trial.distribution()));
      return result;
    }
    result.path.push_back(*accepted);
  }
}

}  // namespace specdec
