#pragma once
#include <vector>

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
      const Probs p = target.after(node);
      const int64_t row = draft.child_probs[node];  // -1: chosen deterministically, so q is one-hot
      const double q = row < 0 ? 1.0 : row_of(draft.probs, row)[token];
      if (!random.bernoulli(p[token] / q)) {
        std::vector<double> rest =
            row < 0 ? residual(p, token) : residual(p, row_of(draft.probs, row));
        if (normalise(rest)) {  // else p = q, and only rounding made the rejection possible
          result.next = static_cast<Token>(random.draw(rest));
          return result;
        }
      }
      result.path.push_back(node + 1);
    }
    result.next = static_cast<Token>(random.draw(target.after(draft.proposed())));
    return result;
  }
};

}  // namespace specdec
