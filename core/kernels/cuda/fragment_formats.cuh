#pragma once
// The formats that tensor cores multiply with; fragments.cuh says what each has.
#include "core/kernels/cuda/fragments.cuh"

namespace specdec::cuda {

/// bfloat16, or float16 as two bfloat16 numbers.
template <bool kBrain>
struct SixteenBitFragments {
  using Weights = SixteenBitWeights<kBrain>;
  static constexpr int kFragments = kSteps;
  static constexpr int kMoreWords = 0;
  static constexpr int kParts = kBrain ? 1 : 2;
  static constexpr int kScaleSteps = kSteps;
  static constexpr int kScaleWords = 0;
  static constexpr bool kHasMinima = false;
  static constexpr bool kIsExpanded = !kBrain;
  static constexpr int kOutputTiles = kBrain ? 2 : 1;

  __device__ static uint32_t code(const WeightFragment* chunk, int lane, int step, int w, int i) {
    return chunk[step * kWarp + lane].word[w] >> (16 * i) & 0xFFFFU;
  }
  __device__ static float weight(uint32_t code) { return Weights::widened(code); }
  __device__ static void expand(const WeightFragment* fragments, int step,
                                uint32_t (&words)[kParts][4]) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t low[kParts];
      uint32_t high[kParts];
      split(Weights::widened(fragments[step].word[w] & 0xFFFFU), low);
      split(Weights::widened(fragments[step].word[w] >> 16U), high);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        words[part][w] = low[part] | high[part] << 16U;
      }
    }
  }
};

/// The formats of 32 inputs with a float16 scale.
struct ScaledFragments : BlockFragments {
  static constexpr int kScaleSteps = 2;
  static constexpr int kScaleWords = 1;

  /// That of inputs 32 * group .. of a chunk.
  __device__ static float scale(const uint32_t* words, int group) {
    return device::widen_half(words[0] >> (16 * group) & 0xFFFFU);
  }
};

/// A step of codes in bytes, less an offset.
__device__ inline void expand_bytes(const WeightFragment* fragments, int step, int offset,
                                    uint32_t (&words)[1][4]) {
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const uint32_t codes = fragments[step / 2].word[step % 2 * 2 + w / 2] >> (w % 2 * 16);
    words[0][w] = pair_of_codes(codes & 255U, codes >> 8U & 255U, offset);
  }
}

struct Q80Fragments : ScaledFragments {
  static constexpr int kFragments = 2;

  __device__ static uint32_t code(const WeightFragment* chunk, int lane, int step, int w, int i) {
    const WeightFragment& fragment = chunk[step / 2 * kWarp + lane];
    return fragment.word[step % 2 * 2 + w / 2] >> (w % 2 * 16 + i * 8) & 255U;
  }
  __device__ static float weight(uint32_t code) {
    return static_cast<float>(static_cast<int32_t>(code) - 128);
  }
  __device__ static void expand(const WeightFragment* fragments, int step,
                                uint32_t (&words)[kParts][4]) {
    expand_bytes(fragments, step, 128, words);
  }
};

/// A code of four bits.
__device__ inline uint32_t nibble(uint32_t word, int w, int i) {
  return word >> (4 * w + 16 * i) & 15U;
}

struct Q40Fragments : ScaledFragments {
  static constexpr int kFragments = 1;

  __device__ static uint32_t code(const WeightFragment* chunk, int lane, int step, int w, int i) {
    return nibble(chunk[lane].word[step], w, i);
  }
  __device__ static float weight(uint32_t code) {
    return static_cast<float>(static_cast<int32_t>(code) - 8);
  }
  __device__ static void expand(const WeightFragment* fragments, int step,
                                uint32_t (&words)[kParts][4]) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const uint32_t codes = fragments[0].word[step];
      words[0][w] = pair_of_codes(nibble(codes, w, 0), nibble(codes, w, 1), 8);
    }
  }
};

/// Scales: the block's scale and minimum, float16; then a scale and a minimum, a byte each, of
/// either 32 inputs.
struct Q4KFragments : BlockFragments {
  static constexpr int kFragments = 1;
  static constexpr int kScaleSteps = 2;
  static constexpr int kScaleWords = 2;
  static constexpr bool kHasMinima = true;

  __device__ static uint32_t code(const WeightFragment* chunk, int lane, int step, int w, int i) {
    return nibble(chunk[lane].word[step], w, i);
  }
  __device__ static float weight(uint32_t code) { return static_cast<float>(code); }
  __device__ static void expand(const WeightFragment* fragments, int step,
                                uint32_t (&words)[kParts][4]) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const uint32_t codes = fragments[0].word[step];
      words[0][w] = pair_of_codes(nibble(codes, w, 0), nibble(codes, w, 1), 0);
    }
  }
  __device__ static float scale(const uint32_t* words, int group) {
    return device::rounded_product(device::widen_half(words[0] & 0xFFFFU),
                                   static_cast<float>(words[1] >> (16 * group) & 255U));
  }
  __device__ static float minimum(const uint32_t* words, int group) {
    return device::rounded_product(device::widen_half(words[0] >> 16U),
                                   static_cast<float>(words[1] >> (16 * group + 8) & 255U));
  }
};

/// Two more bits of each code lie in the further words. Scales: four of 16 inputs, int8; then the
/// block's, float16.
struct Q6KFragments : BlockFragments {
  static constexpr int kFragments = 1;
  static constexpr int kMoreWords = 2;
  static constexpr int kScaleSteps = 1;
  static constexpr int kScaleWords = 2;

  __device__ static uint32_t code_of(uint32_t low, uint32_t high, int step, int w, int i) {
    return nibble(low, w, i) | (high >> (8 * (step % 2) + 2 * w + 16 * i) & 3U) << 4U;
  }
  __device__ static uint32_t code(const WeightFragment* chunk, int lane, int step, int w, int i) {
    const auto* more = reinterpret_cast<const uint32_t*>(chunk + kFragments * kWarp);
    return code_of(chunk[lane].word[step], more[lane * kMoreWords + step / 2], step, w, i);
  }
  __device__ static float weight(uint32_t code) {
    return static_cast<float>(static_cast<int32_t>(code) - 32);
  }
  __device__ static void expand(const WeightFragment* fragments, int step,
                                uint32_t (&words)[kParts][4]) {
    const uint32_t low = fragments[0].word[step];
    const uint32_t high = fragments[1].word[step / 2];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      words[0][w] =
          pair_of_codes(code_of(low, high, step, w, 0), code_of(low, high, step, w, 1), 32);
    }
  }
  __device__ static float scale(const uint32_t* words, int group) {
    return device::rounded_product(device::widen_half(words[1] & 0xFFFFU),
                                   device::signed_byte(words[0] >> (8 * group) & 255U));
  }
};

/// Numbers of type E4M3, which are exact in bfloat16, with the codes of Q8_0 and float32 scales.
struct Fp8Fragments : BlockFragments {
  static constexpr int kFragments = 2;

  __device__ static uint32_t code(const WeightFragment* chunk, int lane, int step, int w, int i) {
    return Q80Fragments::code(chunk, lane, step, w, i);
  }
  __device__ static float weight(uint32_t code) {
    return device::widen(device::Float8Bits{static_cast<uint8_t>(code)});
  }
  /// Bits of a number that is not NaN, of which a bfloat16 has all that are not 0.
  __device__ static uint32_t number_bits(uint32_t code) {
    const float tiny = device::float_of((code & 0x80U) << 24U | (code & 0x7FU) << 20U);
    return device::bits_of(tiny * device::float_of(0x7B800000U));  // 2^120
  }
  __device__ static void expand(const WeightFragment* fragments, int step,
                                uint32_t (&words)[kParts][4]) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const uint32_t codes = fragments[step / 2].word[step % 2 * 2 + w / 2] >> (w % 2 * 16);
      words[0][w] = number_bits(codes & 255U) >> 16U | number_bits(codes >> 8U & 255U);
    }
  }
};

struct Fp8x128Fragments : Fp8Fragments {
  static constexpr int kScaleSteps = kSteps;
  static constexpr int kScaleWords = 1;

  __device__ static float scale(const uint32_t* words, int /*group*/) {
    return device::float_of(words[0]);
  }
};

struct Fp8x32Fragments : Fp8Fragments {
  static constexpr int kScaleSteps = 2;
  static constexpr int kScaleWords = 2;

  __device__ static float scale(const uint32_t* words, int group) {
    return device::float_of(words[group]);
  }
};

/// The codes of Q4_K. Scales: a float32 number; then the zero point.
struct Int4x128Fragments : Q4KFragments {
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

/// The same with a bfloat16 scale and a zero point of either 32 inputs.
struct Int4x32Fragments : Q4KFragments {
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

/// The codes of Q8_0, from 0 on. Scales: a float32 number; then what is added to each weight.
struct Affine8x64Fragments : BlockFragments {
  static constexpr int kFragments = 2;
  static constexpr int kScaleSteps = 2;
  static constexpr int kScaleWords = 2;
  static constexpr bool kHasMinima = true;
  static constexpr bool kIsAffine = true;

  __device__ static uint32_t code(const WeightFragment* chunk, int lane, int step, int w, int i) {
    return Q80Fragments::code(chunk, lane, step, w, i);
  }
  __device__ static float weight(uint32_t code) { return static_cast<float>(code); }
  __device__ static void expand(const WeightFragment* fragments, int step,
                                uint32_t (&words)[kParts][4]) {
    expand_bytes(fragments, step, 0, words);
  }
  __device__ static float scale(const uint32_t* words, int /*group*/) {
    return device::float_of(words[0]);
  }
  __device__ static float minimum(const uint32_t* words, int /*group*/) {
    return -device::float_of(words[1]);
  }
};

/// The codes of Q4_0. Scales of either 32 inputs: a number and what is added, bfloat16.
struct Affine4x32Fragments : Q40Fragments {
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
Result with_fragments(CudaWeights format, Result none, const Use& use) {
  switch (format) {
    case CudaWeights::kBFloat16:
      return use(SixteenBitFragments<true>{});
    case CudaWeights::kFloat16:
      return use(SixteenBitFragments<false>{});
    case CudaWeights::kQ80:
      return use(Q80Fragments{});
    case CudaWeights::kQ40:
      return use(Q40Fragments{});
    case CudaWeights::kQ4K:
      return use(Q4KFragments{});
    case CudaWeights::kQ6K:
      return use(Q6KFragments{});
    case CudaWeights::kFp8x128:
      return use(Fp8x128Fragments{});
    case CudaWeights::kFp8x32:
      return use(Fp8x32Fragments{});
    case CudaWeights::kInt4x128:
      return use(Int4x128Fragments{});
    case CudaWeights::kInt4x32:
      return use(Int4x32Fragments{});
    case CudaWeights::kAffine8x64:
      return use(Affine8x64Fragments{});
    case CudaWeights::kAffine4x32:
      return use(Affine4x32Fragments{});
    default:
      return none;
  }
}

}  // namespace specdec::cuda
