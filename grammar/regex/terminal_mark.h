#pragma once
#include "grammar/regex/regex.h"

namespace specdec {

// The mark stands in a text where a terminal ends: U+10FFFF, which is no character.

/// The points but the mark.
CodePoints without_mark(const CodePoints& points);

/// The mark, or nothing.
RegexId maybe_mark(RegexStore& store);

/// A text of `terminal` without marks in it, the mark, and any text.
RegexId marked(RegexStore& store, RegexId terminal);

}  // namespace specdec
