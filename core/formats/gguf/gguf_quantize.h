#pragma once
#include <cstddef>
#include <cstdint>

namespace specdec {

/// Writes values as consecutive blocks of Q8_0, bit for bit as gguf-py does: a half d, the largest
/// magnitude / 127, and 32 codes round(x / d), halves away from zero. `values`: a multiple of 32,
/// all finite; `out` has 34 bytes for each 32.
void quantize_q8_0(const float* values, int64_t count, std::byte* out);

/// IEEE half precision, to the nearest, ties to even; too large values become infinite.
uint16_t half_bits(float value);

}  // namespace specdec
