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
  /// `drafted`: what the children were drawn from, or nullptr.
  RejectionTrial(const TokenProbs& target, const TokenProbs* drafted) : target_(target) {
    if (drafted != nullptr) {
      drafted_ = *drafted;
    }
  }

  /// Decides about a child; a rejection leaves the residual distributions behind.
  bool accepts(Token token, Randomness& random) {
    const double drafted = drafted_mass(drafted_ ? &*drafted_ : nullptr, token);
    return random.bernoulli(target_[token] / drafted) || !reject(token);
  }

  /// What is left of the target's distribution.
  const TokenProbs& distribution() const { return target_; }

 private:
  /// False when no mass would be left: a rejection that only rounding made possible.
  bool reject(Token token) {
    const TokenProbs rest =
        residual(target_, drafted_ ? *drafted_ : TokenProbs::one_hot(token, target_.vocab_size()));
    if (drafted_) {
      const TokenProbs others = drafted_->without(token);
      drafted_ = others.sum() > 0.0 ? others.normalised() : others;
    }
    if (!(rest.sum() > 0.0)) {
      return false;
    }
    target_ = rest.normalised();
    return true;
  }

  TokenProbs target_;
  std::optional<TokenProbs> drafted_;
};

}  // namespace

VerifyResult RejectionVerifier::verify(const Draft& draft, TargetProbs& target,
                                       int64_t /*position*/, Randomness& random) const {
  check_probs(draft, target);
  VerifyResult result{.path = {0}};
  while (true) {
    const int64_t node = result.path.back();
    const std::vector<int64_t> children = draft.children(node);
    RejectionTrial trial(target.after(node), children.empty() ? nullptr : draft.drawn_from(node));
    const auto accepted = std::find_if(children.begin(), children.end(), [&](int64_t child) {
      return trial.accepts(draft.tokens[static_cast<size_t>(child)], random);
    });
    if (accepted == children.end()) {
      result.next = trial.distribution().draw(random);
      return result;
    }
    result.path.push_back(*accepted);
  }
}

}  // namespace specdec
