#pragma once
#include <cstdint>
#include <utility>

#include "grammar/cfg/grammar_text.h"
#include "grammar/regex/regex.h"

namespace specdec {

/// Reads {"substring_chunks": ["...", ...]}, {"substring_words": "..."} or {"substring_chars":
/// "..."} at the cursor: the language of any number of neighbouring chunks, words (runs of letters,
/// digits and '_', of white space, or of others) or characters, none included; and its size, in
/// characters. Throws GrammarError with the place.
std::pair<RegexId, uint64_t> read_lark_substring(RegexStore& regexes, GrammarText& text);

}  // namespace specdec
