#pragma once
#include "decoders/verifier.h"
#include "decoders/verifiers/probs.h"

namespace specdec {

/// Speculative sampling of chains, as published (Leviathan et al., 2023, Algorithm 1).
class LeviathanVerifier final : public Verifier {
 public:
  bool allows_trees() const override { return false; }
  VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t /*position*/,
                      Randomness& random) const override {
    VerifyResult result{.path = {0}};
    for (int64_t node = 0; node < draft.proposed(); ++node) {
      const Token token = draft.tokens[node + 1];
      const TokenProbs* drawn_from = draft.drawn_from(node);  // nullptr: chosen deterministically
      const TokenProbs q =
          drawn_from ? *drawn_from : TokenProbs::one_hot(token, target.vocab_size());
      if (!random.bernoulli(target.probability(node, token) / q[token])) {
        const TokenProbs rest = residual(target.after(node), q);
        if (rest.sum() > 0) {  // else p = q, and only rounding made the rejection possible
          result.next = rest.draw(random);
          return result;
        }
      }
      result.path.push_back(node + 1);
    }
    result.next = target.draw(draft.proposed(), random);
    return result;
  }
};

}  // namespace specdec
