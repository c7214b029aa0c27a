#pragma once
#include <algorithm>

#include "core/language_model.h"
#include "decoders/session.h"

namespace specdec {

/// Looks one token ahead: of the `width` likeliest next tokens it takes the one that begins the
/// likeliest pair, and commits both. Decides by the request's distributions, so not greedily.
class LikeliestPair final : public DecodingStrategy {
 public:
  LikeliestPair(LanguageModel& target, int64_t width) : target_(target), width_(width) {}

  Generation generate(const Request& request) override {
    Session session(request, target_);
    session.prefill(target_, {});  // commits the first token, drawn as the request says
    while (!session.finished()) {
      Draft draft = Draft::root(session.newest());
      ForwardResult result = target_.verify(draft, {});
      const int64_t most = std::min(width_, session.draft_limits().tokens);
      if (most > 0) {
        for (const Candidate& next : session.target_probs(draft, result).after(0).top(most)) {
          draft.add(next.token, 0);
        }
        session.drafted();
        target_.truncate(target_.length());  // forgets the root, which the next forward has again
        result = target_.verify(draft, {});
      }
      session.verified();
      const VerifyResult best = likeliest(draft, session.target_probs(draft, result));
      target_.commit(best.path);
      session.commit(draft, best);
    }
    return std::move(session).finish();
  }

 private:
  static VerifyResult likeliest(const Draft& draft, TargetProbs& target) {
    VerifyResult best{.path = {0}, .next = target.best(0)};
    double most = 0.0;
    for (int64_t node = 1; node < draft.size(); ++node) {
      const Token next = target.best(node);
      const double pair =
          target.probability(0, draft.tokens[node]) * target.probability(node, next);
      if (pair > most) {
        most = pair;
        best = {.path = {0, node}, .next = next};
      }
    }
    return best;
  }

  LanguageModel& target_;
  int64_t width_;
};

}  // namespace specdec
