#pragma once
#include <cstddef>
#include <string_view>

namespace specdec {

/// Number of bytes to add, leave out or change to make one text the other (Levenshtein).
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace specdec
