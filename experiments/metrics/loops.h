#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/types.h"
#include "experiments/metrics/metrics.h"

namespace specdec {

// Small models end up repeating themselves, and a repeated text is easy to draft: it makes drafters
// look better than they are on text that anybody reads.

/// Longest period of a loop, in tokens.
inline constexpr int64_t kLongestLoopPeriod = 64;
/// Fewest repetitions of its period, and fewest tokens, that make a loop: a table's "|---|---|" or
/// a number's zeros are none.
inline constexpr int64_t kLoopRepetitions = 3;
inline constexpr int64_t kShortestLoop = 32;

/// Index at which the first loop in `tokens` begins; tokens.size() when there is none.
size_t loop_start(TokenSpan tokens);

/// The generation as if it had been stopped before its loop: the steps that end before it, their
/// share of the decode time, and the tokens of these. A generation without a loop is unchanged, and
/// so is one whose steps do not add up to its tokens (beam search).
Generation before_loop(Generation generation);
/// Records whose generations end before their loops, by before_loop; texts stay whole.
std::vector<GenerationRecord> before_loops(std::span<const GenerationRecord> records);

/// Figures of the text before loops. Whether greedy texts are equal is decided on whole texts, and
/// each row says how much loops would have added.
Summary summarize_before_loops(std::span<const GenerationRecord> records,
                               const SummaryOptions& options);

}  // namespace specdec
