#pragma once
#include <cstdint>

#include "core/draft.h"
#include "decoders/drafter.h"

namespace specdec {

/// Checks what a drafter returned: a tree whose root is the newest committed token, whose nodes
/// stand behind their parents, whose tokens are of the vocabulary, and which keeps to the context's
/// limits of tokens and depth. A draft that is too large cannot be cut: to leave out a
/// token that was drawn changes the output's distribution. Each distribution that children were
/// drawn from is one over the vocabulary, with the sum 1; those that a device keeps are not read.
/// Throws InternalError.
void check_draft(const Draft& draft, const DraftContext& context);

/// Checks that each node of a draft has parent and child_probs, and that these name distributions
/// that the draft has. Throws InternalError.
void check_child_probs(const Draft& draft);

/// Checks that the draft's distributions are over a vocabulary of this size, which may be
/// kUnknownVocabulary. Throws InternalError.
void check_vocabularies(const Draft& draft, int64_t vocab_size);

/// Checks what a strategy hands to a drafter that needs hidden states, layers or logits of the
/// target. Throws InternalError.
void check_needs(const Needs& needs, const DraftContext& context);

/// Checks what a verifier returned: a path of the draft from its root on, and a token of the
/// vocabulary. Throws InternalError.
void check_result(const Draft& draft, const VerifyResult& result, int64_t vocab_size);

}  // namespace specdec
