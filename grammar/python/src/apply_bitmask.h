#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "tensor.h"

namespace specdec::python {

/// How many of the logits' columns a bitmask is applied to: the first `vocab_size`, or all of them.
/// Throws Error when the logits have fewer than `vocab_size`, or without it so few that no bit of
/// the bitmask's last word belongs to one.
int64_t masked_columns(int64_t columns, int64_t words, std::optional<int64_t> vocab_size);

/// Sets logits whose bit is 0 to -inf, in place: those of masked_columns. What the bitmask has no
/// bit for counts as 0. `rows`: those to do, in both; empty = all of the logits.
/// Throws Error for logits that are not float16, bfloat16, float32 or float64.
void apply_bitmask(const Tensor& logits, const Tensor& bitmask, std::optional<int64_t> vocab_size,
                   std::span<const int64_t> rows);

}  // namespace specdec::python
