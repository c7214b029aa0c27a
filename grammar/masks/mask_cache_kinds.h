#pragma once
#include <cstdint>

namespace specdec {

/// The entries of a vocabulary's cache file that say what masks go by. (Others: see
/// GrammarVocabulary.)
enum MaskCacheKind : uint32_t { kRemainders = 16, kRemainderTexts, kSpelling, kWalk };

}  // namespace specdec
