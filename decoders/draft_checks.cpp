#include "decoders/draft_checks.h"

#include "core/error.h"

namespace specdec {

void check_draft(const Draft& draft, const DraftContext& context) {
  SPECDEC_CHECK(!draft.tokens.empty() && draft.tokens.front() == context.committed.back(),
                "the drafter: a draft's root is the newest committed token");
  SPECDEC_CHECK(draft.parents.size() == draft.tokens.size() &&
                    draft.child_probs.size() == draft.tokens.size(),
                "the drafter: a draft of {} tokens with {} parents and {} child_probs",
                draft.tokens.size(), draft.parents.size(), draft.child_probs.size());
  SPECDEC_CHECK(draft.parents.front() == -1, "the drafter: a draft's root has no parent, but {}",
                draft.parents.front());
  for (int64_t node = 1; node < draft.size(); ++node) {
    const int64_t parent = draft.parents[static_cast<size_t>(node)];
    SPECDEC_CHECK(parent >= 0 && parent < node,
                  "the drafter: node {} of a draft has parent {}, which does not stand before it",
                  node, parent);
  }
  SPECDEC_CHECK(draft.proposed() <= context.max_tokens,
                "the drafter: proposed {} tokens where {} fit (max_tokens)", draft.proposed(),
                context.max_tokens);
  SPECDEC_CHECK(draft.depth() <= context.max_depth,
                "the drafter: proposed a path of {} tokens where {} fit (max_depth)", draft.depth(),
                context.max_depth);
}

void check_result(const Draft& draft, const VerifyResult& result, int64_t vocab_size) {
  int64_t parent = -1;
  for (const int64_t node : result.path) {
    SPECDEC_CHECK(
        node >= 0 && node < draft.size() && draft.parents[static_cast<size_t>(node)] == parent,
        "the verifier: its path has node {} after node {}, which is no path of the draft", node,
        parent);
    parent = node;
  }
  SPECDEC_CHECK(parent >= 0, "the verifier: its path is empty, and begins at the root");
  SPECDEC_CHECK(result.next >= 0 && result.next < vocab_size,
                "the verifier: token {} comes next, but the vocabulary has {}", result.next,
                vocab_size);
}

}  // namespace specdec
