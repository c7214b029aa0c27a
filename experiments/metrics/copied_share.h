#pragma once
#include <cstdint>

#include "core/types.h"

namespace specdec {

/// Shortest stretch that counts as copied, in tokens.
inline constexpr int64_t kShortestCopy = 4;

/// Share of `output` in stretches of at least kShortestCopy tokens that occur in `prompt`: what
/// drafters that look the prompt up could propose. 0 for an empty output.
double copied_share(TokenSpan prompt, TokenSpan output);

}  // namespace specdec
