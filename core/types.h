#pragma once
#include <cstdint>
#include <span>

namespace specdec {

/// Index of a vocabulary entry.
using Token = int32_t;
/// A run of tokens that somebody else owns.
using TokenSpan = std::span<const Token>;

}  // namespace specdec
