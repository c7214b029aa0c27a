#pragma once
#include <cstdint>
#include <vector>

#include "core/tokenizers/tokenizer.h"
#include "core/types.h"
#include "grammar/grammar_matcher.h"

namespace specdec {

/// The forced tokens: each is the only one that its mask allows. At most `most`; stops where
/// nothing but an end can follow.
std::vector<Token> forced_tokens(GrammarMatcher place, int64_t most);

/// The forced tokens, then those that the tokenizer would cut the forced bytes into that follow;
/// these can be cut in other ways, so they are guesses. `output`: the tokens before, with which the
/// tokenizer sees the bytes. A last token that may be the beginning of a longer one is left out.
std::vector<Token> forced_text_tokens(const GrammarMatcher& place, const Tokenizer* tokenizer,
                                      TokenSpan output, int64_t most);

}  // namespace specdec
