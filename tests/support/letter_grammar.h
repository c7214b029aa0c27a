#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "decoders/decoding_strategy.h"
#include "grammar/compiled_grammar.h"

namespace specdec {

/// The texts of a regular expression over tokens that stand for these pieces; those that are empty
/// end a text. With `canonical` only in that tokenizer's own cut.
std::shared_ptr<const CompiledGrammar> letter_grammar(const std::vector<std::string>& pieces,
                                                      std::string_view pattern,
                                                      const Tokenizer* canonical = nullptr);

}  // namespace specdec
