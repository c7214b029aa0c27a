// The block formats of ggml (llama.cpp), in the notation of gguf-py's quants.py. Compiled without
// contraction of a * b + c, which would round once less.
#include "core/formats/gguf/gguf_blocks.h"

#include <array>
#include <cstring>

#include "core/error.h"
#include "core/formats/float_values.h"
#include "core/formats/quantised/codebook_blocks.h"
#include "core/formats/quantised/scaled_blocks.h"

namespace specdec {
namespace {

using Byte = unsigned char;

float half_at(const Byte* bytes) {
  return half_value(static_cast<uint16_t>(bytes[0] | bytes[1] << 8));
}

/// 4-bit codes of 32 values: low halves of the 16 bytes first, then the high ones.
int low_bits(const Byte* codes, int i) { return i < 16 ? codes[i] & 15 : codes[i - 16] >> 4; }
/// The fifth bit of value i.
int fifth_bit(const Byte* bits, int i) { return bits[i / 8] >> i % 8 & 1; }

void q4_0(const Byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(low_bits(block + 2, i) - 8);
  }
}

void q4_1(const Byte* block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(low_bits(block + 4, i)) + m;
  }
}

void q5_0(const Byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) {
    const int q = low_bits(block + 6, i) | fifth_bit(block + 2, i) << 4;
    out[i] = d * static_cast<float>(q - 16);
  }
}

void q5_1(const Byte* block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  for (int i = 0; i < 32; ++i) {
    const int q = low_bits(block + 8, i) | fifth_bit(block + 4, i) << 4;
    out[i] = d * static_cast<float>(q) + m;
  }
}

void q8_0(const Byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(static_cast<signed char>(block[2 + i])) * d;
  }
}

/// 2-bit codes: of each 128 values, byte k holds those of values k, k + 32, k + 64, k + 96.
int two_bits(const Byte* codes, int i) {
  return codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

void q2_k(const Byte* block, float* out) {
  const Byte* scales = block;
  const float d = half_at(block + 80);
  const float dmin = half_at(block + 82);
  for (int i = 0; i < 256; ++i) {
    const float dl = d * static_cast<float>(scales[i / 16] & 15);
    const float ml = dmin * static_cast<float>(scales[i / 16] >> 4);
    out[i] = dl * static_cast<float>(two_bits(block + 16, i)) - ml;
  }
}

void q3_k(const Byte* block, float* out) {
  const Byte* high = block;
  const Byte* scales = block + 96;
  const float d = half_at(block + 108);
  for (int i = 0; i < 256; ++i) {
    const int s = i / 16;
    const int low = scales[s % 8] >> (s / 8 * 4) & 15;
    const int scale = (low | (scales[8 + s % 4] >> (s / 4 * 2) & 3) << 4) - 32;
    const int offset = (high[i % 32] >> i / 32 & 1) != 0 ? 0 : 4;  // no offset where the bit is set
    out[i] = d * static_cast<float>(scale) * static_cast<float>(two_bits(block + 32, i) - offset);
  }
}

/// The 6-bit scale and minimum of group g (of 8) in the 12 bytes of Q4_K and Q5_K.
std::array<int, 2> scale_and_minimum(const Byte* bytes, int g) {
  if (g < 4) {
    return {bytes[g] & 63, bytes[4 + g] & 63};
  }
  return {(bytes[4 + g] & 15) | (bytes[g - 4] >> 2 & 48), bytes[4 + g] >> 4 | (bytes[g] >> 2 & 48)};
}

/// Q4_K and Q5_K differ in a fifth bit.
template <bool kFifth>
void q45_k(const Byte* block, float* out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  const Byte* high = block + 16;
  const Byte* codes = kFifth ? high + 32 : high;
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32;
    const auto [scale, minimum] = scale_and_minimum(block + 4, group);
    int q = codes[i / 64 * 32 + i % 32] >> (group % 2 * 4) & 15;
    if (kFifth) {
      q |= (high[i % 32] >> group & 1) << 4;
    }
    const float dl = d * static_cast<float>(scale);
    const float ml = dmin * static_cast<float>(minimum);
    out[i] = dl * static_cast<float>(q) - ml;
  }
}

void q6_k(const Byte* block, float* out) {
  const Byte* scales = block + 192;
  const float d = half_at(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int low = block[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
    const int q = (low | two_bits(block + 128, i) << 4) - 32;
    const float dl = d * static_cast<float>(static_cast<signed char>(scales[i / 16]));
    out[i] = dl * static_cast<float>(q);
  }
}

using Dequantize = void (*)(const Byte* block, float* out);

Dequantize find_dequantize(DType dtype) {
  switch (dtype) {
    case DType::kQ40:
      return q4_0;
    case DType::kQ41:
      return q4_1;
    case DType::kQ50:
      return q5_0;
    case DType::kQ51:
      return q5_1;
    case DType::kQ80:
      return q8_0;
    case DType::kQ2K:
      return q2_k;
    case DType::kQ3K:
      return q3_k;
    case DType::kQ4K:
      return q45_k<false>;
    case DType::kQ5K:
      return q45_k<true>;
    case DType::kQ6K:
      return q6_k;
    default:
      break;
  }
  SPECDEC_CHECK(false, "dequantize: {} is no block format", dtype_name(dtype));
  return nullptr;
}

}  // namespace

void dequantize(DType dtype, const std::byte* blocks, int64_t values, float* out) {
  if (is_scaled_block(dtype)) {
    return read_scaled_blocks(dtype, blocks, values, out);
  }
  if (is_codebook_block(dtype)) {
    return read_codebook_values(dtype, blocks, values, out);
  }
  const Dequantize one = find_dequantize(dtype);
  const int64_t each = block_values(dtype);
  SPECDEC_CHECK(values % each == 0, "dequantize: {} values are not whole blocks", values);
  const auto* block = reinterpret_cast<const Byte*>(blocks);
  for (int64_t done = 0; done < values; done += each) {
    one(block, out + done);
    block += dtype_bytes(dtype);
  }
}

}  // namespace specdec
