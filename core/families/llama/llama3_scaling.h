#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/transformer/rope_config.h"

namespace specdec {

/// True where two lists of divisors of rotary frequencies differ by no more than the rounding of
/// programs that compute them in float32, as llama.cpp's converter does.
bool same_divisors(const std::vector<double>& a, const std::vector<double>& b);

/// A llama3 scaling that has a rotation's divisors: Llama 3's own bands (1 and 4) where they do,
/// else bands fitted to them. None where the divisors follow no such rule, or too few lie between
/// the bands to say which.
std::optional<Llama3Rope> find_llama3(const RopeConfig& rope, int64_t head_dim,
                                      int64_t max_positions);

}  // namespace specdec
