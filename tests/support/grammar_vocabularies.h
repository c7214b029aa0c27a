#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grammar/grammar_vocabulary.h"
#include "grammar/json/json_schema.h"

namespace specdec {

/// The end token of the vocabularies below; token 0 is a control piece.
inline constexpr Token kTinyEnd = 1;

/// A vocabulary of nothing but an end token, for walks byte by byte.
std::shared_ptr<GrammarVocabulary> empty_vocabulary();

/// All bytes, JSON's punctuation glued together, parts of UTF-8 characters and escapes, and
/// `random_tokens` texts drawn from pieces of these; some tokens twice.
std::shared_ptr<GrammarVocabulary> tiny_vocabulary(uint32_t seed, size_t random_tokens,
                                                   const GrammarCache& cache = {},
                                                   const GrammarVocabularyLimits& limits = {});

inline constexpr Token kCall = 2;       // has no bytes
inline constexpr Token kEndOfCall = 3;  // has bytes
inline constexpr Token kTurnEnd = 4;    // ends texts, and is named

/// Bytes (from token 10 on), JSON's punctuation, and the tokens above: <|call|>, </call> and
/// <|turn_end|>.
std::shared_ptr<GrammarVocabulary> control_vocabulary();

JsonSchemaOptions json_options(bool schema_order, const std::string& whitespace,
                               EscapeStyle escapes = EscapeStyle::kAny);

/// The objects of a JSON Lines file in tests/data/grammar/, which may be compressed (.gz).
std::vector<std::string> grammar_data(const std::string& name);

}  // namespace specdec
