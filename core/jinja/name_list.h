#pragma once
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace specdec {

/// Whether a list of names has `name`.
template <size_t n>
bool is_one_of(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace specdec
