#pragma once
#include <cstdint>
#include <span>

#include "tensor.h"

namespace specdec::python {

/// Sets logits whose bit is 0 to -inf, in place: those of the first `vocab_size` columns. What the
/// bitmask has no bit for counts as 0. `rows`: those to do, in both; empty = all of the logits.
/// Throws Error for logits that are not float16, bfloat16, float32 or float64.
void apply_bitmask(const Tensor& logits, const Tensor& bitmask, int64_t vocab_size,
                   std::span<const int64_t> rows);

}  // namespace specdec::python
