#pragma once
#include <cstdint>

namespace specdec {

/// Most tokens of a prompt that one forward takes: longer prompts are fed in pieces, so that
/// activations stay small and in cache.
inline constexpr int64_t kPrefillTokens = 512;

}  // namespace specdec
