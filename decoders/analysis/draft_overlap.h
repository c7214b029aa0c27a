#pragma once
#include <limits>
#include <span>
#include <vector>

#include "core/draft.h"
#include "decoders/target_probs.h"

namespace specdec {

/// sum_x min(p(x), q(x)) = 1 - TV(p, q): the probability that a token drawn from q is accepted when
/// p is wanted (Leviathan et al., 2023, Corollary 3.6), without the noise of drawing. Equal sizes.
double overlap(std::span<const double> p, std::span<const double> q);

/// Overlaps of the nodes of the draft that have children, in order: each is the overlap of the
/// target's and the drafter's distribution, which is the probability that the first child is
/// accepted; or, for children found deterministically, the target's mass on them, which is the
/// probability that one of them is. Only nodes above `max_depth` count.
std::vector<double> draft_overlaps(const Draft& draft, TargetProbs& target,
                                   int64_t max_depth = std::numeric_limits<int64_t>::max());

}  // namespace specdec
