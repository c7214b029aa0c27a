#pragma once
#include "experiments/run/arms.h"

namespace specdec {

/// Scores a recorded answer by the prompts file's key: fills `is_right` and `scorer`, or neither
/// where the turn has no key. An answer on which the program takes too long is not scored. Throws
/// Error when the program fails.
void score_answer(const QualityConfig& config, const Item& item, GenerationRecord& record);

/// True of an answer that another version of the program scored than the one that is there now:
/// their scores must not be mixed.
bool has_stale_score(const QualityConfig& config, const GenerationRecord& record);

}  // namespace specdec
