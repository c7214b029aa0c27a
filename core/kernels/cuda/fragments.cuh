#pragma once
// How weights lie in memory for tensor cores: as the lanes of a warp hold the left operand of
// mma.m16n8k16, 16 bytes a lane and load. A tile is 16 outputs, a chunk 64 inputs, four steps of an
// mma. Behind the fragments of all tiles lie the scales, in the order in which lanes need them.
// core/kernels/weight_fragments.h arranges matrices so.
//
// Each format has kFragments of a chunk of a tile, perhaps none, behind which lie kMoreWords of
// each lane (of three, two of each lane, then one of each); kParts, the bfloat16 numbers that a
// weight becomes; kScaleSteps, after which the sums are multiplied by scales; kScaleWords, those of
// an output's scales in a chunk, 0 = none; kHasMinima, whether minimum() is subtracted from each
// scaled weight; kHasZeros, whether that is zero() scaled; kIsAffine, whether a weight and its
// minimum are rounded once; kOutputTiles, the most tiles of outputs of a warp, and kRowTiles,
// those of eight rows; code(), that of input i of word w of a step of a lane; weight(), what a code
// means without its scale; and, where weights are not multiplied as they lie in memory
// (kIsExpanded), expand(), which makes bfloat16 numbers of a step's weights, of one lane's
// fragments and then its further words.
#include <cuda_launch.h>
#include <paired_numbers.h>

#include "core/kernels/cuda/kernels.h"
#include "core/kernels/device/numbers.h"

namespace specdec::cuda {

constexpr int kTensorThreads = 256;
constexpr int kTensorWarps = kTensorThreads / kWarp;
constexpr int kTileOutputs = 16;
constexpr int kStepInputs = 16;  // of an mma
constexpr int kSteps = 4;        // of a chunk
constexpr int kChunkInputs = kSteps * kStepInputs;

/// What a lane loads at once: for 16-bit weights, a step of a tile.
struct alignas(16) WeightFragment {
  uint32_t word[4];
};

SPECDEC_DEVICE int32_t tiles_of(int32_t count, int32_t each) { return (count + each - 1) / each; }
SPECDEC_DEVICE int32_t chunks_of(int32_t in) { return tiles_of(in, kChunkInputs); }
/// Tiles of outputs in memory: whole pairs.
SPECDEC_DEVICE int32_t weight_tiles(int32_t outputs) {
  return tiles_of(outputs, 2 * kTileOutputs) * 2;
}

/// First of the two inputs that a lane holds in a word, of the lower or the upper eight of a step.
__device__ inline int32_t fragment_input(int lane, int half) { return lane % 4 * 2 + half * 8; }

/// The first parts of a number as bfloat16: they add up to it, but for what lies below their bits.
template <int kParts>
SPECDEC_DEVICE void split(float number, uint32_t (&parts)[kParts]) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const device::Bfloat16Bits rounded = device::narrow(number, device::Bfloat16Bits{});
    parts[part] = rounded.bits;
    const bool finite = (rounded.bits & 0x7F80U) != 0x7F80U;
    number = finite ? number - device::widen(rounded) : 0.0F;
  }
}

/// What two numbers leave of themselves beside their pair of rounded ones; 0 where that is not
/// finite.
__device__ inline float rest_of(float number, uint32_t rounded_bits) {
  const float rounded = device::float_of(rounded_bits);
  return device::magnitude_of(rounded) < device::infinity() ? number - rounded : 0.0F;
}

/// split() of two numbers, whose parts are pairs.
template <int kParts>
__device__ inline void split_pair(float first, float second, uint32_t (&parts)[kParts]) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const uint32_t pair = pair_of_bfloat16(first, second);
    parts[part] = pair;
    first = rest_of(first, pair << 16U);
    second = rest_of(second, pair & 0xFFFF0000U);
  }
}

/// A bfloat16 number twice.
__device__ inline uint32_t twice(float number) {
  const uint32_t bits = device::bits_of(number) >> 16U;
  return bits << 16U | bits;
}

/// Two codes of up to seven bits, in the lower bits of either half, less an offset, as bfloat16.
__device__ inline uint32_t pair_of_codes(uint32_t codes, int offset) {
  // The bits of 128 + code; differences of integers up to 256 are exact.
  const float base = 128.0F + static_cast<float>(offset);
  return fused_pairs(codes | 0x43004300U, twice(1.0F), twice(-base));
}

/// Two bytes of a word, from `first` on, less an offset, as bfloat16.
__device__ inline uint32_t pair_of_bytes(uint32_t word, unsigned first, int offset) {
  // The bits of 2^23 + code; a difference of integers below 2^24 is exact.
  const float base = 8388608.0F + static_cast<float>(offset);
  const uint32_t low = __byte_perm(word, 0x4B000000U, 0x7650U + first);
  const uint32_t high = __byte_perm(word, 0x4B000000U, 0x7650U + first + 1);
  return __byte_perm(device::bits_of(device::float_of(low) - base),
                     device::bits_of(device::float_of(high) - base), 0x7632U);
}

/// A word whose bit `from` becomes bit `to`.
__device__ inline uint32_t shifted(uint32_t word, int from, int to) {
  return from < to ? word << (to - from) : word >> (from - to);
}

/// Code of four bits i of word w, of those of a step.
__device__ inline uint32_t nibble(uint32_t step, int w, int i) {
  return step >> (4 * w + 16 * i) & 15U;
}

/// Code of eight bits i of word w of a step, from the fragment that holds the step.
__device__ inline uint32_t byte_code(const WeightFragment& fragment, int step, int w, int i) {
  return fragment.word[step % 2 * 2 + w / 2] >> (w % 2 * 16 + i * 8) & 255U;
}

/// Words that a lane loads at once: its further ones, or the scales of its two outputs.
template <int kCount>
struct alignas(kCount < 4 ? 4 * kCount : 16) LaneWords {
  uint32_t word[kCount];
};

/// The further words of a lane. `first`: where those of all lanes begin.
template <int kCount>
__device__ inline void read_more_words(const WeightFragment* first, int lane,
                                       uint32_t (&words)[4]) {
  constexpr int kTogether = kCount < 3 ? kCount : 2;
  if constexpr (kTogether > 0) {
    const auto* lanes = reinterpret_cast<const LaneWords<kTogether>*>(first);
    const auto more = load_aligned<LaneWords<kTogether>>(lanes + lane);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      words[i] = more.word[i];
    }
    if constexpr (kCount == 3) {
      words[2] = reinterpret_cast<const uint32_t*>(lanes + kWarp)[lane];
    }
  }
}

/// What the formats in blocks have in common.
struct BlockFragments {
  static constexpr int kMoreWords = 0;
  static constexpr int kParts = 1;
  static constexpr bool kHasMinima = false;
  static constexpr bool kHasZeros = false;
  static constexpr bool kIsAffine = false;
  static constexpr bool kIsExpanded = true;
  static constexpr int kOutputTiles = 2;
  static constexpr int kRowTiles = 8;
};

/// What a kernel for a format gets.
template <class Task, class Format>
struct FormatTask {
  Task task;
  Format format;
};

/// Bytes of the fragments of a tile and chunk.
template <class Format>
constexpr int kChunkBytes = kWarp*(Format::kFragments* static_cast<int>(sizeof(WeightFragment)) +
                                   Format::kMoreWords * static_cast<int>(sizeof(uint32_t)));
/// Words of the scales of a tile and chunk: eight groups of lanes, each with those of outputs g and
/// g + 8.
template <class Format>
constexpr int kChunkScaleWords = kTileOutputs* Format::kScaleWords;

/// Where the scales begin.
template <class Format>
SPECDEC_DEVICE int64_t scales_offset(int32_t outputs, int32_t in) {
  return static_cast<int64_t>(weight_tiles(outputs)) * chunks_of(in) * kChunkBytes<Format>;
}

inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

/// Warps that take a tile and one of `count` pieces of the inputs each.
inline LaunchShape warp_shape(int32_t tiles, int32_t count) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(tiles);
  shape.grid_y = static_cast<unsigned>(tiles_of(count, kTensorWarps));
  shape.threads = kTensorThreads;
  return shape;
}

}  // namespace specdec::cuda
