#pragma once
// The formats that tensor cores multiply with; fragments.cuh says what each has.
#include "core/kernels/cuda/codebook_fragments.cuh"
#include "core/kernels/device/stored_block.h"

namespace specdec::cuda {

/// bfloat16, or float16 as two bfloat16 numbers.
template <bool kBrain>
struct SixteenBitFragments {
  static constexpr int kFragments = kSteps;
  static constexpr int kMoreWords = 0;
  static constexpr int kParts = kBrain ? 1 : 2;
  static constexpr int kScaleSteps = kSteps;
  static constexpr int kScaleWords = 0;
  static constexpr bool kHasMinima = false;
  static constexpr bool kIsExpanded = !kBrain;
  static constexpr int kOutputTiles = kBrain ? 2 : 1;
  static constexpr int kRowTiles = 8;

  __device__ static uint32_t code(const WeightFragment* chunk, int lane, int step, int w, int i) {
    return chunk[step * kWarp + lane].word[w] >> (16 * i) & 0xFFFFU;
  }
  __device__ static float weight(uint32_t code) {
    return kBrain ? device::float_of(code << 16U) : widen_half(code);
  }
  __device__ static void expand(const WeightFragment* fragments, int step,
                                uint32_t (&words)[kParts][4]) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t parts[kParts];
      split_pair(weight(fragments[step].word[w] & 0xFFFFU), weight(fragments[step].word[w] >> 16U),
                 parts);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        words[part][w] = parts[part];
      }
    }
  }
};

/// Integers in a byte each, less an offset.
template <int kOffset>
struct ByteCodes : BlockFragments {
  static constexpr int kFragments = 2;

  __device__ static uint32_t code(const WeightFragment* chunk, int lane, int step, int w, int i) {
    return byte_code(chunk[step / 2 * kWarp + lane], step, w, i);
  }
  __device__ static float weight(uint32_t code) {
    return static_cast<float>(static_cast<int32_t>(code) - kOffset);
  }
  __device__ static void expand(const WeightFragment* fragments, int step,
                                uint32_t (&words)[kParts][4]) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      words[0][w] = pair_of_bytes(fragments[step / 2].word[step % 2 * 2 + w / 2],
                                  static_cast<unsigned>(w % 2 * 2), kOffset);
    }
  }
};

/// Bit of a code, of those that lie in a word a lane.
__device__ inline uint32_t code_bit(const uint32_t* more, int step, int w, int i) {
  return more[0] >> (8 * step + w + 4 * i) & 1U;
}

/// Two bits of a code, of those that lie in two words a lane.
__device__ inline uint32_t code_pair(const uint32_t* more, int step, int w, int i) {
  return more[step / 2] >> (8 * (step % 2) + 2 * w + 16 * i) & 3U;
}

/// Both code_bit of a word, from bit `to` of either half on.
__device__ inline uint32_t bits_of_codes(const uint32_t* more, int step, int w, int to) {
  const int from = 8 * step + w;
  return (shifted(more[0], from, to) & 1U << to) |
         (shifted(more[0], from + 4, to + 16) & 0x10000U << to);
}

/// Both code_pair of a word, from bit `to` of either half on.
__device__ inline uint32_t pairs_of_codes(const uint32_t* more, int step, int w, int to) {
  return shifted(more[step / 2], 8 * (step % 2) + 2 * w, to) & 0x00030003U << to;
}

/// Integers of kBits bits, less an offset: four in the fragment, those above in further words. Of
/// two or three bits all lie there.
template <int kBits, int kOffset>
struct PackedCodes : BlockFragments {
  static constexpr int kFragments = kBits < 4 ? 0 : 1;
  static constexpr int kMoreWords = kBits < 4 ? kBits : kBits - 4;

  /// `low`: the fragment's word of the step, if there is one; `more`: the lane's further words.
  __device__ static uint32_t code_of(uint32_t low, const uint32_t* more, int step, int w, int i) {
    if constexpr (kBits == 2) {
      return code_pair(more, step, w, i);
    }
    if constexpr (kBits == 3) {
      return code_pair(more, step, w, i) | code_bit(more + 2, step, w, i) << 2U;
    }
    const uint32_t code = nibble(low, w, i);
    if constexpr (kBits == 5) {
      return code | code_bit(more, step, w, i) << 4U;
    }
    if constexpr (kBits == 6) {
      return code | code_pair(more, step, w, i) << 4U;
    }
    return code;
  }
  /// code_of both of a word's codes, in the lower bits of either half.
  __device__ static uint32_t codes_of(uint32_t low, const uint32_t* more, int step, int w) {
    if constexpr (kBits == 2) {
      return pairs_of_codes(more, step, w, 0);
    }
    if constexpr (kBits == 3) {
      return pairs_of_codes(more, step, w, 0) | bits_of_codes(more + 2, step, w, 2);
    }
    const uint32_t codes = low >> (4 * w) & 0x000F000FU;
    if constexpr (kBits == 5) {
      return codes | bits_of_codes(more, step, w, 4);
    }
    if constexpr (kBits == 6) {
      return codes | pairs_of_codes(more, step, w, 4);
    }
    return codes;
  }
  __device__ static uint32_t code(const WeightFragment* chunk, int lane, int step, int w, int i) {
    uint32_t more[4] = {};
    read_more_words<kMoreWords>(chunk + kFragments * kWarp, lane, more);
    return code_of(kFragments > 0 ? chunk[lane].word[step] : 0, more, step, w, i);
  }
  __device__ static float weight(uint32_t code) {
    return static_cast<float>(static_cast<int32_t>(code) - kOffset);
  }
  __device__ static void expand(const WeightFragment* fragments, int step,
                                uint32_t (&words)[kParts][4]) {
    const uint32_t low = kFragments > 0 ? fragments[0].word[step] : 0;
    const uint32_t* more = fragments[kMoreWords > 0 ? kFragments : 0].word;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      words[0][w] = pair_of_codes(codes_of(low, more, step, w), kOffset);
    }
  }
};

/// Scales: a float16 number of either 32 inputs.
template <class Codes>
struct HalfScales : Codes {
  static constexpr int kScaleSteps = 2;
  static constexpr int kScaleWords = 1;

  /// Scale of the 32 inputs from number 32 * group of a chunk on.
  __device__ static float scale(const uint32_t* words, int group) {
    return widen_half(words[0] >> (16 * group) & 0xFFFFU);
  }
};

/// Scales of either 32 inputs: a float16 number, and what is added to each weight.
template <class Codes>
struct HalfScalesAndMinima : Codes {
  static constexpr int kScaleSteps = 2;
  static constexpr int kScaleWords = 2;
  static constexpr bool kHasMinima = true;

  __device__ static float scale(const uint32_t* words, int group) {
    return widen_half(words[group] & 0xFFFFU);
  }
  __device__ static float minimum(const uint32_t* words, int group) {
    return -widen_half(words[group] >> 16U);
  }
};

/// Scales: the block's scale and minimum, float16; then a scale and a minimum, a byte each, of
/// either 32 inputs.
template <class Codes>
struct SuperScales : Codes {
  static constexpr int kScaleSteps = 2;
  static constexpr int kScaleWords = 2;
  static constexpr bool kHasMinima = true;

  __device__ static float scale(const uint32_t* words, int group) {
    return device::rounded_product(widen_half(words[0] & 0xFFFFU),
                                   static_cast<float>(words[1] >> (16 * group) & 255U));
  }
  __device__ static float minimum(const uint32_t* words, int group) {
    return device::rounded_product(widen_half(words[0] >> 16U),
                                   static_cast<float>(words[1] >> (16 * group + 8) & 255U));
  }
};

/// Scales: the block's scale and minimum, float16; then a scale (the low four bits) and a minimum
/// of each 16 inputs.
struct Q2KFragments : PackedCodes<2, 0> {
  static constexpr int kScaleSteps = 1;
  static constexpr int kScaleWords = 2;
  static constexpr bool kHasMinima = true;

  __device__ static float scale(const uint32_t* words, int group) {
    return device::rounded_product(widen_half(words[0] & 0xFFFFU),
                                   static_cast<float>(words[1] >> (8 * group) & 15U));
  }
  __device__ static float minimum(const uint32_t* words, int group) {
    return device::rounded_product(widen_half(words[0] >> 16U),
                                   static_cast<float>(words[1] >> (8 * group + 4) & 15U));
  }
};

/// Scales: four of 16 inputs, int8; then the block's, float16.
template <class Codes>
struct SignedScales : Codes {
  static constexpr int kScaleSteps = 1;
  static constexpr int kScaleWords = 2;

  __device__ static float scale(const uint32_t* words, int group) {
    return device::rounded_product(widen_half(words[1] & 0xFFFFU),
                                   device::signed_byte(words[0] >> (8 * group) & 255U));
  }
};

/// Numbers of type E4M3, which are exact in bfloat16, in a byte each, and kWords float32 scales.
template <int kWords>
struct Fp8Fragments : BlockFragments {
  static constexpr int kFragments = 2;
  static constexpr int kScaleSteps = kSteps / kWords;
  static constexpr int kScaleWords = kWords;

  __device__ static uint32_t code(const WeightFragment* chunk, int lane, int step, int w, int i) {
    return byte_code(chunk[step / 2 * kWarp + lane], step, w, i);
  }
  __device__ static float weight(uint32_t code) {
    return device::widen(device::Float8Bits{static_cast<uint8_t>(code)});
  }
  /// Two bytes of a word, from `first` on, of numbers that are not NaN.
  __device__ static uint32_t pair_of_numbers(uint32_t word, unsigned first) {
    const uint32_t codes = __byte_perm(word, 0, 0x1404U + first * 0x1010U);  // in the upper bytes
    const uint32_t tiny = (codes & 0x80008000U) | (codes >> 4U & 0x07F007F0U);
    return fused_pairs(tiny, 0x7B807B80U, 0x80008000U);  // times 2^120
  }
  __device__ static void expand(const WeightFragment* fragments, int step,
                                uint32_t (&words)[kParts][4]) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      words[0][w] = pair_of_numbers(fragments[step / 2].word[step % 2 * 2 + w / 2],
                                    static_cast<unsigned>(w % 2 * 2));
    }
  }
  __device__ static float scale(const uint32_t* words, int group) {
    return device::float_of(words[group]);
  }
};

/// Scales: a float32 number; then the zero point.
struct Int4x128Fragments : PackedCodes<4, 0> {
  static constexpr int kScaleSteps = 2;
  static constexpr int kScaleWords = 2;
  static constexpr bool kHasMinima = true;
  static constexpr bool kHasZeros = true;

  __device__ static float scale(const uint32_t* words, int /*group*/) {
    return device::float_of(words[0]);
  }
  __device__ static float zero(const uint32_t* words, int /*group*/) {
    return static_cast<float>(words[1]);
  }
  __device__ static float minimum(const uint32_t* words, int group) {
    return device::rounded_product(scale(words, group), zero(words, group));
  }
};

/// Scales of either 32 inputs: a bfloat16 number and a zero point.
struct Int4x32Fragments : PackedCodes<4, 0> {
  static constexpr int kScaleSteps = 2;
  static constexpr int kScaleWords = 2;
  static constexpr bool kHasMinima = true;
  static constexpr bool kHasZeros = true;

  __device__ static float scale(const uint32_t* words, int group) {
    return device::float_of(words[group] << 16U);
  }
  __device__ static float zero(const uint32_t* words, int group) {
    return static_cast<float>(words[group] >> 16U);
  }
  __device__ static float minimum(const uint32_t* words, int group) {
    return device::rounded_product(scale(words, group), zero(words, group));
  }
};

/// Scales: a float32 number; then what is added to each weight.
struct Affine8x64Fragments : ByteCodes<0> {
  static constexpr int kScaleSteps = 2;
  static constexpr int kScaleWords = 2;
  static constexpr bool kHasMinima = true;
  static constexpr bool kIsAffine = true;

  __device__ static float scale(const uint32_t* words, int /*group*/) {
    return device::float_of(words[0]);
  }
  __device__ static float minimum(const uint32_t* words, int /*group*/) {
    return -device::float_of(words[1]);
  }
};

/// Scales of either 32 inputs: a number and what is added, bfloat16.
struct Affine4x32Fragments : PackedCodes<4, 8> {
  static constexpr int kScaleSteps = 2;
  static constexpr int kScaleWords = 2;
  static constexpr bool kHasMinima = true;
  static constexpr bool kIsAffine = true;

  __device__ static float scale(const uint32_t* words, int group) {
    return device::float_of(words[group] << 16U);
  }
  __device__ static float minimum(const uint32_t* words, int group) {
    return -device::float_of(words[group] & 0xFFFF0000U);
  }
};

/// Calls use(format) with a format's fragments; `none` for one that tensor cores do not take.
template <class Result, class Use>
Result with_fragments(WeightFormat format, Result none, const Use& use) {
  switch (format) {
    case WeightFormat::kFloat32:
      return none;
    case WeightFormat::kBFloat16:
      return use(SixteenBitFragments<true>{});
    case WeightFormat::kFloat16:
      return use(SixteenBitFragments<false>{});
    case WeightFormat::kInt8:
      return use(HalfScales<ByteCodes<128>>{});
    case WeightFormat::kQ40:
      return use(HalfScales<PackedCodes<4, 8>>{});
    case WeightFormat::kQ41:
      return use(HalfScalesAndMinima<PackedCodes<4, 0>>{});
    case WeightFormat::kQ50:
      return use(HalfScales<PackedCodes<5, 16>>{});
    case WeightFormat::kQ51:
      return use(HalfScalesAndMinima<PackedCodes<5, 0>>{});
    case WeightFormat::kQ2K:
      return use(Q2KFragments{});
    case WeightFormat::kQ3K:
      return use(SignedScales<PackedCodes<3, 4>>{});
    case WeightFormat::kQ4K:
      return use(SuperScales<PackedCodes<4, 0>>{});
    case WeightFormat::kQ5K:
      return use(SuperScales<PackedCodes<5, 0>>{});
    case WeightFormat::kQ6K:
      return use(SignedScales<PackedCodes<6, 32>>{});
    case WeightFormat::kFp8x128:
      return use(Fp8Fragments<1>{});
    case WeightFormat::kFp8x32:
      return use(Fp8Fragments<2>{});
    case WeightFormat::kInt4x128:
      return use(Int4x128Fragments{});
    case WeightFormat::kInt4x32:
      return use(Int4x32Fragments{});
    case WeightFormat::kAffine8x64:
      return use(Affine8x64Fragments{});
    case WeightFormat::kAffine4x32:
      return use(Affine4x32Fragments{});
    default:
      return with_codebook(format, none, use);
  }
}

}  // namespace specdec::cuda
