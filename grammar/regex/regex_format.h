#pragma once
#include "grammar/regex/regex.h"

namespace specdec {

/// Regular expressions as texts: ECMA-262's Pattern with the flag `u`, so that they are valid
/// without it too. A part of them, none of it wrong: groups nest at most 8 deep; named groups,
/// back-references, \0, counts above 99 (but {n} and {n,} of any size), properties other than
/// general categories and a few more, and ranges are left out whose ends are neither both written
/// as themselves in ASCII, nor the first in ASCII and the second beyond, nor told apart by their
/// escapes' first digits.
RegexId regex_format(RegexStore& store);

}  // namespace specdec
