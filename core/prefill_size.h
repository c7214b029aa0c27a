#pragma once
#include <cstdint>

namespace specdec {

/// Most tokens of a prompt that one forward takes: longer prompts are fed in pieces, so that
/// activations stay small and in cache.
inline constexpr int64_t kPrefillTokens = 512;

/// Fewest tokens of a prompt's piece for ForwardOptions::library_products. Counted, not measured:
/// to unpack a matrix in 16 bits moves it three times, and the own kernel reads it for each 64
/// rows. For stored blocks the count is against it: what they may gain is arithmetic.
inline constexpr int64_t kFewestLibraryTokens = 256;

/// Forwards of so many tokens read prompts; drafts and the like are smaller.
inline constexpr int64_t kFewestPrefillTokens = 64;

}  // namespace specdec
