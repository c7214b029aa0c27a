#include "decoders/verifiers/probs.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {

void check_probs(const Draft& draft, const TargetProbs& target) {
  SPECDEC_CHECK(target.nodes() == draft.size(), "{} target distributions for a draft of {} nodes",
                target.nodes(), draft.size());
  SPECDEC_CHECK(draft.child_probs.size() == draft.tokens.size(),
                "a draft of {} nodes and {} distributions", draft.tokens.size(),
                draft.child_probs.size());
  for (const int64_t distribution : draft.child_probs) {
    SPECDEC_CHECK(distribution >= -1 && distribution < std::ssize(draft.probs),
                  "a node's children come from distribution {} of {}", distribution,
                  draft.probs.size());
  }
  for (const TokenProbs& probs : draft.probs) {
    SPECDEC_CHECK(probs.vocab_size() == target.vocab_size(),
                  "the draft's distributions are over {} tokens, the target's over {}",
                  probs.vocab_size(), target.vocab_size());
  }
}

double drafted_mass(const TokenProbs* q, Token token) {
  const double mass = q == nullptr ? 1.0 : (*q)[token];
  SPECDEC_CHECK(
      mass > 0.0,
      "token {} was drafted, but the distribution that it was drawn from gives it no mass: the "
      "draft's distributions are not the ones it was drawn from",
      token);
  return mass;
}

VerifyResult follow(const Draft& draft,
                    const std::function<Token(int64_t node, int64_t depth)>& choose) {
  VerifyResult result{.path = {0}};
  while (true) {
    const int64_t node = result.path.back();
    result.next = choose(node, static_cast<int64_t>(result.path.size()) - 1);
    const std::vector<int64_t> children = draft.children(node);
    const auto match = std::find_if(children.begin(), children.end(), [&](int64_t child) {
      return draft.tokens[static_cast<size_t>(child)] == result.next;
    });
    if (match == children.end()) {
      return result;
    }
    result.path.push_back(*match);
  }
}

}  // namespace specdec
