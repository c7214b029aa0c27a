#pragma once
#include <functional>

#include "decoders/verifier.h"

namespace specdec {

/// What every verifier asks of its input: a target distribution for each node, and distributions of
/// the draft, if any, over the same vocabulary. Throws InternalError.
void check_probs(const Draft& draft, const TargetProbs& target);

/// The probability with which `token` was drawn from `q`, 1 when it was chosen deterministically
/// (nullptr). InternalError when q gives it none: then q is not what it was drawn from.
double drafted_mass(const TokenProbs* q, Token token);

/// Follows the draft from its root as long as it holds what `choose(node, depth)` says comes next;
/// the first choice that it does not hold is VerifyResult::next.
VerifyResult follow(const Draft& draft,
                    const std::function<Token(int64_t node, int64_t depth)>& choose);

}  // namespace specdec
