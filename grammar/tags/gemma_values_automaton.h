#pragma once
#include <memory>
#include <optional>
#include <string_view>

#include "grammar/automaton.h"

namespace specdec {

/// The values of JSON texts as Gemma 4 writes them in tool calls: {name:<|"|>text<|"|>,n:[1,true]}.
/// Names stand without quotes, and strings without escapes. `values`: an automaton of compact JSON
/// texts whose names are not empty and have none of kGemmaNameEnds, and whose strings have no
/// quote in them. `quote`: the token that is the quote; nothing where it is the text kGemmaQuote.
std::unique_ptr<Automaton> make_gemma_values_automaton(std::unique_ptr<Automaton> values,
                                                       std::optional<Token> quote);

inline constexpr std::string_view kGemmaQuote = "<|\"|>";
/// Characters that names do not have.
inline constexpr std::string_view kGemmaNameEnds = "{}[]:,<>\n";

}  // namespace specdec
