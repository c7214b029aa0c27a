#pragma once
#include <span>
#include <vector>

#include "core/draft.h"
#include "decoders/decoding_strategy.h"
#include "decoders/verifier.h"
#include "grammar/token_mask.h"

namespace specdec {

/// Depth of the tokens of a step that count: where the text ended at an accepted token, so that
/// only `committed` tokens were committed, those behind it stand where there is no text. Else all.
int64_t counted_depth(const Draft& draft, const VerifyResult& result, int64_t committed);

/// Fills drafted, accepted and depth of a step that committed `step.committed` tokens.
void count_draft(const Draft& draft, const VerifyResult& result, StepStatistics& step);

/// The branches that were rejected after the last accepted token: see StepStatistics::rejected.
std::vector<std::vector<Token>> rejected_branches(const Draft& draft, const VerifyResult& result,
                                                  int64_t committed);

/// Fills by_freedom, of the tokens that count: masks[i] is the grammar's after node i.
void count_by_freedom(const Draft& draft, const VerifyResult& result,
                      std::span<const TokenMask> masks, StepStatistics& step);

}  // namespace specdec
