#pragma once
#include <cstddef>
#include <cstdint>

#include "core/formats/dtype.h"

namespace specdec {

/// Writes the values of consecutive blocks (is_block(dtype), those of scaled_blocks.h and
/// codebook_blocks.h too) as float32, exactly as gguf-py does: each product and each sum rounded
/// once. `values`: a multiple of block_values(dtype). The blocks need no alignment.
void dequantize(DType dtype, const std::byte* blocks, int64_t values, float* out);

}  // namespace specdec
