#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "grammar/regex/regex.h"

namespace specdec {

/// True when all texts of one language are texts of another.
bool is_within(RegexStore& store, RegexId inner, RegexId outer);

bool are_equal(RegexStore& store, RegexId one, RegexId other);

/// Splits each set into what is in `by` and what is not.
void split_blocks(std::vector<CodePoints>& blocks, const CodePoints& by);

/// The texts of `points`, a language of single characters' repetition, in which `found` begins at
/// no place before the end; or, not `negative`, at all of them.
RegexId tempered(RegexStore& store, RegexId points, RegexId found, bool negative);

/// `round` at least counts.first and at most counts.second times, but as few as `rest`, which
/// follows, allows, and `rest`. Nothing where that is not known to be regular: where the two begin
/// alike, `round` must be a class and `rest` begin with one of several texts of one length.
std::optional<RegexId> lazy_repeat(RegexStore& store, RegexId round,
                                   std::pair<uint64_t, std::optional<uint64_t>> counts,
                                   RegexId rest);

}  // namespace specdec
