#pragma once
#include <functional>
#include <span>
#include <vector>

#include "core/draft.h"
#include "core/types.h"
#include "decoders/verifier.h"

namespace specdec {

/// What every verifier asks of its input: a target distribution for each node, and distributions of
/// the draft, if any, over the same vocabulary. Throws InternalError.
void check_probs(const Draft& draft, const TargetProbs& target);

/// Row `row` of distributions [n, vocab]; lives as long as the tensor.
Probs row_of(const Tensor& distributions, int64_t row);

/// The weight of a token; InternalError when it is outside the vocabulary.
double weight_of(Probs distribution, Token token);

/// Follows the draft from its root as long as it holds what `choose(node, depth)` says comes next;
/// the first choice that it does not hold is VerifyResult::next.
VerifyResult follow(const Draft& draft,
                    const std::function<Token(int64_t node, int64_t depth)>& choose);

/// Divides by the sum; false, and unchanged, when nothing is left to divide.
bool normalise(std::vector<double>& weights);

/// The residual max(scale * p - q, 0) of Leviathan et al., 2023, not normalised.
std::vector<double> residual(Probs p, Probs q, double scale = 1.0);

/// The same for a q that has all its mass on one token: one chosen deterministically.
std::vector<double> residual(Probs p, Token chosen, double scale = 1.0);

}  // namespace specdec
