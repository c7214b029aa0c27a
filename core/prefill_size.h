#pragma once
#include <cstdint>

namespace specdec {

/// Most tokens of a prompt that one forward takes: longer prompts are fed in pieces, so that
/// activations stay small and in cache.
inline constexpr int64_t kPrefillTokens = 512;

/// Forwards of so many tokens read prompts; drafts and the like are smaller.
inline constexpr int64_t kFewestPrefillTokens = 64;

}  // namespace specdec
