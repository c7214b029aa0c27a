#include "decoders/draft_checks.h"

#include <cmath>
#include <vector>

#include "core/error.h"

namespace specdec {
namespace {

/// What rounding leaves of the sum of a distribution's probabilities.
constexpr double kSumTolerance = 1e-6;

/// Its tokens are of the vocabulary.
void check_tokens(const Draft& draft, const DraftContext& context) {
  for (int64_t node = 1; node < draft.size(); ++node) {
    const Token token = draft.tokens[static_cast<size_t>(node)];
    SPECDEC_CHECK(token >= 0 && token < context.vocab_size,
                  "the drafter: node {} of a draft is token {}, and the vocabulary has {}", node,
                  token, context.vocab_size);
  }
}

/// Each distribution is one over the vocabulary. Those of a device are not read.
void check_distributions(const Draft& draft, const DraftContext& context) {
  if (context.device_random) {
    return;
  }
  check_vocabularies(draft, context.vocab_size);
  for (size_t i = 0; i < draft.probs.size(); ++i) {
    const double sum = draft.probs[i].sum();
    SPECDEC_CHECK(std::abs(sum - 1.0) <= kSumTolerance,
                  "the drafter: distribution {} of a draft sums to {}, not to 1", i, sum);
  }
}

}  // namespace

void check_child_probs(const Draft& draft) {
  SPECDEC_CHECK(draft.parents.size() == draft.tokens.size() &&
                    draft.child_probs.size() == draft.tokens.size(),
                "the drafter: a draft of {} tokens with {} parents and {} child_probs",
                draft.tokens.size(), draft.parents.size(), draft.child_probs.size());
  for (size_t node = 0; node < draft.child_probs.size(); ++node) {
    const int64_t index = draft.child_probs[node];
    SPECDEC_CHECK(index >= -1 && index < std::ssize(draft.probs),
                  "the drafter: child_probs of node {} is {}, and the draft has {} distributions",
                  node, index, draft.probs.size());
  }
}

void check_vocabularies(const Draft& draft, int64_t vocab_size) {
  for (size_t i = 0; i < draft.probs.size(); ++i) {
    const int64_t size = draft.probs[i].vocab_size();
    SPECDEC_CHECK(vocab_size == kUnknownVocabulary || size == vocab_size,
                  "the drafter: distribution {} of a draft is over {} tokens, and the vocabulary "
                  "has {}",
                  i, size, vocab_size);
  }
}

void check_draft(const Draft& draft, const DraftContext& context) {
  SPECDEC_CHECK(!draft.tokens.empty() && draft.tokens.front() == context.committed.back(),
                "the drafter: a draft's root is the newest committed token");
  check_child_probs(draft);
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
  check_tokens(draft, context);
  check_distributions(draft, context);
}

void check_needs(const Needs& needs, const DraftContext& context) {
  const bool needs_prompt = needs.internals || !needs.capture_layers.empty();
  if (context.last_step == nullptr) {
    SPECDEC_CHECK(!needs_prompt || context.prompt_result != nullptr,
                  "the strategy: this drafter needs the target's hidden states or layers of the "
                  "prompt, and DraftContext::prompt_result has none. Read prompt and drafts with "
                  "what Drafter::needs() says, or refuse such a drafter with a ConfigError");
    return;
  }
  const ForwardResult& result = context.last_step->result;
  SPECDEC_CHECK((!needs.internals || result.final_hidden.defined()) &&
                    result.captured.size() >= needs.capture_layers.size() &&
                    (!needs.logits || result.logits.defined()),
                "the strategy: this drafter needs hidden states, layers or logits that the last "
                "step's forward was not asked for. Read prompt and drafts with what "
                "Drafter::needs() says, or refuse such a drafter with a ConfigError");
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
