#include "decoders/verifiers/probs.h"

#include <algorithm>

#include "core/error.h"
#include "core/kernels/device/verify.h"
#include "decoders/draft_checks.h"

namespace specdec {
namespace {

/// A draft whose next tokens are chosen.
class FollowedDraft {
 public:
  FollowedDraft(const Draft& draft, const std::function<Token(int64_t node, int64_t depth)>& choose)
      : walk_(draft), choose_(choose) {}
  int32_t child_after(int32_t node, int32_t last) const { return walk_.child_after(node, last); }
  Token token(int32_t node) const { return walk_.token(node); }
  void enter(int32_t node) { walk_.enter(node); }
  Token choose(int32_t node) const { return choose_(node, std::ssize(path()) - 1); }
  const std::vector<int64_t>& path() const { return walk_.path(); }

 private:
  DraftWalk walk_;
  const std::function<Token(int64_t node, int64_t depth)>& choose_;
};

}  // namespace

void check_probs(const Draft& draft, const TargetProbs& target) {
  SPECDEC_CHECK(target.nodes() == draft.size(), "{} target distributions for a draft of {} nodes",
                target.nodes(), draft.size());
  check_child_probs(draft);
  check_vocabularies(draft, target.vocab_size());
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

int32_t DraftWalk::child_after(int32_t node, int32_t last) const {
  const auto child = std::find(draft_.parents.begin() + last + 1, draft_.parents.end(), node);
  return child == draft_.parents.end() ? -1 : static_cast<int32_t>(child - draft_.parents.begin());
}

VerifyResult follow(const Draft& draft,
                    const std::function<Token(int64_t node, int64_t depth)>& choose) {
  FollowedDraft followed(draft, choose);
  const Token next = device::match(&followed);
  return {.path = followed.path(), .next = next};
}

}  // namespace specdec
