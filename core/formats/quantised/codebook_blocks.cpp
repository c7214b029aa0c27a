// The block formats of ggml (llama.cpp), in the notation of gguf-py's quants.py.
#include "core/formats/quantised/codebook_blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/formats/float_values.h"
#include "core/formats/quantised/codebook_grids.h"
#include "core/formats/quantised/scaled_blocks.h"

namespace specdec {
namespace {

using Byte = unsigned char;

/// Inputs of the larger blocks of GGUF.
constexpr int64_t kSuperInputs = 256;

uint32_t word16(const Byte* bytes) { return bytes[0] | uint32_t{bytes[1]} << 8U; }
uint32_t word32(const Byte* bytes) { return word16(bytes) | word16(bytes + 2) << 16U; }
float half_scale(const Byte* bytes) { return half_value(static_cast<uint16_t>(word16(bytes))); }

/// `count` codes, those in the low halves of bytes first.
void nibble_codes(const Byte* bytes, int64_t count, uint8_t* codes) {
  for (int64_t k = 0; k < count; ++k) {
    codes[k] = k < count / 2 ? bytes[k] & 15U : bytes[k - count / 2] >> 4U;
  }
}

/// Bits 0 to 6, and above them the one that makes their number even.
uint32_t even_signs(uint32_t bits) {
  return bits | static_cast<uint32_t>(std::popcount(bits) % 2) << 7U;
}

/// Codes of eight values of IQ2: their grid's digits, and 4 more where a sign is set.
void signed_eight(uint32_t digits, uint32_t signs, uint8_t* codes) {
  for (unsigned k = 0; k < 8; ++k) {
    codes[k] = static_cast<uint8_t>((digits >> 2 * k & 3U) | (signs >> k & 1U) << 2U);
  }
}

/// Codes of four values of IQ3, and 8 more where a sign is set.
void signed_four(uint32_t digits, uint32_t signs, uint8_t* codes) {
  for (unsigned k = 0; k < 4; ++k) {
    codes[k] = static_cast<uint8_t>((digits >> 3 * k & 7U) | (signs >> k & 1U) << 3U);
  }
}

/// Codes of eight values of IQ1: twice their grid's digits, one more where they are shifted up.
void shifted_eight(uint32_t digits, bool up, uint8_t* codes) {
  for (unsigned k = 0; k < 8; ++k) {
    codes[k] = static_cast<uint8_t>((digits >> 2 * k & 3U) * 2 + (up ? 1 : 0));
  }
}

void iq1_s(const Byte* block, uint8_t* codes, float* scales) {
  const float d = half_scale(block);
  for (int64_t part = 0; part < 8; ++part) {
    const uint32_t high = word16(block + 34 + 2 * part);
    scales[part] = d * static_cast<float>(2 * (high >> 12U & 7U) + 1);
    for (int64_t i = 0; i < 4; ++i) {
      const uint32_t entry = block[2 + 4 * part + i] | (high >> 3 * i & 7U) << 8U;
      shifted_eight(kIq1Grid[entry], (high & 0x8000U) == 0, codes + 32 * part + 8 * i);
    }
  }
}

/// Decodes a block of IQ1_M, whose float16 scale lies in the high ends of four words of scales.
void iq1_m(const Byte* block, uint8_t* codes, float* scales) {
  const Byte* high = block + 32;
  const Byte* words = block + 48;
  uint32_t half = 0;
  for (int64_t i = 0; i < 4; ++i) {
    half |= (word16(words + 2 * i) >> 12U) << 4 * i;
  }
  const float d = half_value(static_cast<uint16_t>(half));
  for (int64_t part = 0; part < 16; ++part) {
    const uint32_t scale = word16(words + part / 4 * 2) >> part % 4 * 3 & 7U;
    scales[part] = d * static_cast<float>(2 * scale + 1);
    for (int64_t i = 2 * part; i < 2 * part + 2; ++i) {
      const uint32_t bits = static_cast<uint32_t>(high[part]) >> i % 2 * 4;
      shifted_eight(kIq1Grid[block[i] | (bits & 7U) << 8U], (bits & 8U) == 0, codes + 8 * i);
    }
  }
}

void iq2_xxs(const Byte* block, uint8_t* codes, float* scales) {
  const float d = half_scale(block);
  for (int64_t part = 0; part < 8; ++part) {
    const Byte* entries = block + 2 + 8 * part;
    const uint32_t bits = word32(entries + 4);
    scales[part] = d * (0.5F + static_cast<float>(bits >> 28U)) * 0.25F;
    for (int64_t i = 0; i < 4; ++i) {
      signed_eight(kIq2XxsGrid[entries[i]], even_signs(bits >> 7 * i & 127U),
                   codes + 32 * part + 8 * i);
    }
  }
}

/// The scale of 16 inputs of IQ2_XS and IQ2_S, of four bits.
float iq2_scale(float d, const Byte* scales, int64_t part) {
  const int bits = scales[part / 2] >> part % 2 * 4 & 15;
  return d * (0.5F + static_cast<float>(bits)) * 0.25F;
}

void iq2_xs(const Byte* block, uint8_t* codes, float* scales) {
  const float d = half_scale(block);
  for (int64_t part = 0; part < 16; ++part) {
    scales[part] = iq2_scale(d, block + 66, part);
  }
  for (int64_t i = 0; i < kSuperInputs / 8; ++i) {
    const uint32_t word = word16(block + 2 + 2 * i);
    signed_eight(kIq2XsGrid[word & 511U], even_signs(word >> 9U), codes + 8 * i);
  }
}

void iq2_s(const Byte* block, uint8_t* codes, float* scales) {
  const float d = half_scale(block);
  const Byte* signs = block + 34;
  const Byte* high = block + 66;
  for (int64_t part = 0; part < 16; ++part) {
    scales[part] = iq2_scale(d, block + 74, part);
  }
  for (int64_t i = 0; i < kSuperInputs / 8; ++i) {
    const uint32_t entry = block[2 + i] | (high[i / 4] >> i % 4 * 2 & 3U) << 8U;
    signed_eight(kIq2SGrid[entry], signs[i], codes + 8 * i);
  }
}

void iq3_xxs(const Byte* block, uint8_t* codes, float* scales) {
  const float d = half_scale(block);
  for (int64_t part = 0; part < 8; ++part) {
    const uint32_t bits = word32(block + 66 + 4 * part);
    scales[part] = d * (0.5F + static_cast<float>(bits >> 28U)) * 0.5F;
    for (int64_t i = 0; i < 8; ++i) {
      const uint32_t signs = even_signs(bits >> i / 2 * 7 & 127U) >> i % 2 * 4;
      signed_four(kIq3XxsGrid[block[2 + 8 * part + i]], signs, codes + 32 * part + 4 * i);
    }
  }
}

void iq3_s(const Byte* block, uint8_t* codes, float* scales) {
  const float d = half_scale(block);
  const Byte* high = block + 66;
  const Byte* signs = block + 74;
  const Byte* parts = block + 106;
  for (int64_t part = 0; part < 8; ++part) {
    scales[part] = d * static_cast<float>(1 + 2 * (parts[part / 2] >> part % 2 * 4 & 15));
  }
  for (int64_t i = 0; i < kSuperInputs / 4; ++i) {
    const uint32_t entry = block[2 + i] | (high[i / 8] >> i % 8 & 1U) << 8U;
    signed_four(kIq3SGrid[entry], static_cast<uint32_t>(signs[i / 2]) >> i % 2 * 4, codes + 4 * i);
  }
}

void iq4_nl(const Byte* block, uint8_t* codes, float* scales) {
  scales[0] = half_scale(block);
  nibble_codes(block + 2, 32, codes);
}

void iq4_xs(const Byte* block, uint8_t* codes, float* scales) {
  const float d = half_scale(block);
  const uint32_t high = word16(block + 2);
  for (int64_t part = 0; part < 8; ++part) {
    const int low = block[4 + part / 2] >> part % 2 * 4 & 15;
    const int scale = (low | static_cast<int>(high >> 2 * part & 3U) << 4) - 32;
    scales[part] = d * static_cast<float>(scale);
    nibble_codes(block + 8 + 16 * part, 32, codes + 32 * part);
  }
}

/// Five digits of base 3 a byte, as the fraction byte / 256: the first one highest.
uint8_t ternary_digit(Byte byte, int64_t digit) {
  constexpr unsigned kPowers[] = {1, 3, 9, 27, 81};
  return static_cast<uint8_t>((byte * kPowers[digit] & 255U) * 3 >> 8U);
}

void tq1_0(const Byte* block, uint8_t* codes, float* scales) {
  std::fill_n(scales, kSuperInputs / 32, half_scale(block + 52));
  for (int64_t k = 0; k < kSuperInputs; ++k) {
    codes[k] = k < 160   ? ternary_digit(block[k % 32], k / 32)
               : k < 240 ? ternary_digit(block[32 + (k - 160) % 16], (k - 160) / 16)
                         : ternary_digit(block[48 + (k - 240) % 4], (k - 240) / 4);
  }
}

void tq2_0(const Byte* block, uint8_t* codes, float* scales) {
  std::fill_n(scales, kSuperInputs / 32, half_scale(block + 64));
  for (int64_t k = 0; k < kSuperInputs; ++k) {
    codes[k] = static_cast<uint8_t>(block[k / 128 * 32 + k % 32] >> k % 128 / 32 * 2 & 3);
  }
}

/// Half a power of two: the numbers are twice those of E2M1.
void mxfp4(const Byte* block, uint8_t* codes, float* scales) {
  const uint32_t exponent = block[0];
  scales[0] = std::bit_cast<float>(exponent < 2 ? 0x00200000U << exponent : (exponent - 1) << 23U);
  nibble_codes(block + 1, 32, codes);
}

/// Half a number of type E4M3 without its sign; what would be NaN is 0.
void nvfp4(const Byte* block, uint8_t* codes, float* scales) {
  for (int64_t part = 0; part < 4; ++part) {
    const auto bits = static_cast<uint8_t>(block[part] & 0x7F);
    scales[part] = bits == 0x7F ? 0.0F : float8_value(bits) * 0.5F;
    nibble_codes(block + 4 + 8 * part, 16, codes + 16 * part);
  }
}

/// FP4_16, FP4_32, NF4_32.
template <int kInputs>
void own_block(const Byte* block, uint8_t* codes, float* scales) {
  scales[0] = std::bit_cast<float>(word32(block));
  nibble_codes(block + 4, kInputs, codes);
}

constexpr Codebook kIq1Numbers = {-1.125F, -0.875F, -0.125F, 0.125F, 0.875F, 1.125F};
constexpr Codebook kIq2Numbers = {8, 25, 43, 0, -8, -25, -43};
constexpr Codebook kIq3XxsNumbers = {4,  12,  20,  28,  36,  44,  52,  62,
                                     -4, -12, -20, -28, -36, -44, -52, -62};
constexpr Codebook kIq3SNumbers = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};
constexpr Codebook kIq4Numbers = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
constexpr Codebook kTernaryNumbers = {-1, 0, 1, 2};
constexpr Codebook kDoubledFp4Numbers = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr Codebook kFp4Numbers = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                  -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
/// Quantiles of a normal distribution (Dettmers et al., 2023, arXiv:2305.14314, appendix E).
constexpr Codebook kNf4Numbers = {-1.0F,
                                  -0.6961928009986877F,
                                  -0.5250730514526367F,
                                  -0.39491748809814453F,
                                  -0.28444138169288635F,
                                  -0.18477343022823334F,
                                  -0.09105003625154495F,
                                  0.0F,
                                  0.07958029955625534F,
                                  0.16093020141124725F,
                                  0.24611230194568634F,
                                  0.33791524171829224F,
                                  0.44070982933044434F,
                                  0.5626170039176941F,
                                  0.7229568362236023F,
                                  1.0F};

struct CodebookFormat {
  DType dtype;
  const Codebook* numbers;
  int64_t scale_inputs;
  void (*read)(const Byte* block, uint8_t* codes, float* scales);
};

constexpr CodebookFormat kFormats[] = {{DType::kIq1S, &kIq1Numbers, 32, iq1_s},
                                       {DType::kIq1M, &kIq1Numbers, 16, iq1_m},
                                       {DType::kIq2Xxs, &kIq2Numbers, 32, iq2_xxs},
                                       {DType::kIq2Xs, &kIq2Numbers, 16, iq2_xs},
                                       {DType::kIq2S, &kIq2Numbers, 16, iq2_s},
                                       {DType::kIq3Xxs, &kIq3XxsNumbers, 32, iq3_xxs},
                                       {DType::kIq3S, &kIq3SNumbers, 32, iq3_s},
                                       {DType::kIq4Nl, &kIq4Numbers, 32, iq4_nl},
                                       {DType::kIq4Xs, &kIq4Numbers, 32, iq4_xs},
                                       {DType::kTq1, &kTernaryNumbers, 32, tq1_0},
                                       {DType::kTq2, &kTernaryNumbers, 32, tq2_0},
                                       {DType::kMxfp4, &kDoubledFp4Numbers, 32, mxfp4},
                                       {DType::kNvfp4, &kDoubledFp4Numbers, 16, nvfp4},
                                       {DType::kFp4x16, &kFp4Numbers, 16, own_block<16>},
                                       {DType::kFp4x32, &kFp4Numbers, 32, own_block<32>},
                                       {DType::kNf4x32, &kNf4Numbers, 32, own_block<32>}};

const CodebookFormat* find_format(DType dtype) {
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                   [dtype](const auto& format) { return format.dtype == dtype; });
  return found == std::end(kFormats) ? nullptr : found;
}

const CodebookFormat& format_of(DType dtype) {
  const CodebookFormat* format = find_format(dtype);
  SPECDEC_CHECK(format != nullptr, "{} has no codebook", dtype_name(dtype));
  return *format;
}

}  // namespace

bool is_codebook_block(DType dtype) { return find_format(dtype) != nullptr; }

const Codebook& codebook_of(DType dtype) { return *format_of(dtype).numbers; }

int64_t codebook_scale_inputs(DType dtype) { return format_of(dtype).scale_inputs; }

void read_codebook_block(DType dtype, const std::byte* block, uint8_t* codes, float* scales) {
  format_of(dtype).read(reinterpret_cast<const Byte*>(block), codes, scales);
}

void read_codebook_values(DType dtype, const std::byte* blocks, int64_t values, float* out) {
  const int64_t each = block_values(dtype);
  SPECDEC_CHECK(values % each == 0, "{} values are not whole blocks", values);
  const CodebookFormat& format = format_of(dtype);
  std::array<uint8_t, kSuperInputs> codes{};
  std::array<float, kSuperInputs / 16> scales{};
  for (int64_t done = 0; done < values; done += each) {
    read_codebook_block(dtype, blocks, codes.data(), scales.data());
    for (int64_t k = 0; k < each; ++k) {
      *out++ = scales[static_cast<size_t>(k / format.scale_inputs)] *
               (*format.numbers)[codes[static_cast<size_t>(k)]];
    }
    blocks += dtype_bytes(dtype);
  }
}

void write_codebook_block(DType dtype, const uint8_t* codes, float scale, std::byte* block) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  std::memcpy(block, &bits, sizeof(bits));
  block += sizeof(bits);
  const int64_t half = block_values(dtype) / 2;
  for (int64_t k = 0; k < half; ++k) {
    block[k] = static_cast<std::byte>(codes[k] | static_cast<unsigned>(codes[k + half]) << 4U);
  }
}

}  // namespace specdec
