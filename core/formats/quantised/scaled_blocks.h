#pragma once
#include <cstddef>
#include <cstdint>

#include "core/formats/dtype.h"

namespace specdec {

// The blocks FP8_128, FP8_32, INT4_128 and INT4_32: 128 or 32 successive inputs of a row with one
// scale. A block is the scale (float32; in INT4_32 bfloat16), in INT4 a byte that is the zero
// point, then the codes: a byte each of type E4M3, or those of each 32 inputs as in GGUF's Q4_0
// (byte k has input k in its low half, input k + 16 in its high one). A zero point times the scale
// is exact in float32: then code * scale - zero * scale, rounded once, is (code - zero) * scale.
// AFFINE8_64 and AFFINE4_32 are 64 and 32 inputs with a scale and a minimum (float32; in AFFINE4_32
// bfloat16), which lie before the codes: those of 8 bits are 0 to 255, a byte each, those of 4 bits
// as above, less 8. The minimum is added to code * scale, rounded once.

/// Whether a dtype is one of these blocks.
bool is_scaled_block(DType dtype);
/// Whether the codes of such a block are FP8 numbers, else integers of 0 to 15.
bool has_float8_codes(DType dtype);
/// Whether such a block has a minimum instead of a zero point.
bool has_minimum(DType dtype);
/// Whether the scale of such a block is a float32, else a bfloat16.
bool has_wide_scale(DType dtype);

/// Writes one block, without a minimum, of codes in a byte each; a bfloat16 scale has to hold
/// `scale`.
void write_scaled_block(DType dtype, const uint8_t* codes, float scale, uint8_t zero,
                        std::byte* block);
/// Writes a block with a minimum; codes of 4 bits are 0 to 15.
void write_affine_block(DType dtype, const uint8_t* codes, float scale, float minimum,
                        std::byte* block);
/// Writes the values of consecutive blocks as float32: FP8 numbers times the scale, integers less
/// the zero point times the scale, rounded once, or times the scale plus the minimum.
void read_scaled_blocks(DType dtype, const std::byte* blocks, int64_t values, float* out);

/// Writes codes of four bits, 32 in 16 bytes; `count`: a multiple of 32.
void write_nibbles(const uint8_t* codes, int64_t count, std::byte* out);

}  // namespace specdec
