#pragma once
#include <string_view>

#include "grammar/regex/regex.h"

namespace specdec {

/// Reads a regular expression in ECMA-262 syntax with the flag `u` (what JSON Schema's `pattern`
/// means), and in Rust's where the two differ only by more escapes. With `search` the language is
/// that of all texts that contain a match (JSON Schema), else of texts that match as a whole.
/// Anchors, word boundaries and look-around are taken exactly where the language can be
/// expressed, else refused; back-references always are. Throws GrammarError saying what and at
/// which character.
RegexId parse_regex(RegexStore& store, std::string_view pattern, bool search);

}  // namespace specdec
