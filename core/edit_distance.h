#pragma once
#include <cstddef>
#include <string_view>

namespace specdec {

/// How many bytes must be added, left out or changed to make one text the other (Levenshtein).
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace specdec
