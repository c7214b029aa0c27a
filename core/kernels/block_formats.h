#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/error.h"
#include "core/kernels/panels.h"

namespace specdec {

// The blocks of a panel. A weight is (code - kOffset) * scale + minimum, or the number that the
// code stands for times the scale, exactly as gguf-py widens the block of GGUF that has the same.
// kInputs: of a block; kScaleInputs: that share a scale; kStoredBytes: of one output's block in a
// GGUF file, or as scaled_blocks.h has it.

/// Bits of a code that lie in a byte with those of other inputs; a code may have further ones.
template <int kBits>
constexpr int kLowBits = kBits < 4 ? 2 : 4;

/// The codes of 32 inputs, in kBits. Those of four successive inputs of an output lie in a word.
template <int kBits>
struct PanelCodes {
  /// A byte holds the low four bits of inputs k (its low half) and k + 16.
  uint8_t low[kBlockInputs / 8][kPanel][4];
  /// The bits above: byte j of a word holds those of inputs j, 4 + j, 8 + j, ..., low bits first.
  uint32_t high[kBits - 4][kPanel];
};
template <>
struct PanelCodes<2> {
  /// A byte holds inputs k (in its lowest bits), k + 8, k + 16 and k + 24.
  uint8_t low[kBlockInputs / 16][kPanel][4];
};
template <>
struct PanelCodes<3> {
  uint8_t low[kBlockInputs / 16][kPanel][4];
  uint32_t high[1][kPanel];
};
template <>
struct PanelCodes<4> {
  uint8_t low[kBlockInputs / 8][kPanel][4];
};
template <>
struct PanelCodes<8> {
  uint8_t bytes[kBlockInputs / 4][kPanel][4];
};

template <bool kMinima>
struct PanelScales {
  Fp16 scales[kPanel];
  Fp16 minima[kPanel];
};
template <>
struct PanelScales<false> {
  Fp16 scales[kPanel];
};

/// What a block has not, unless its type says so.
struct BlockTraits {
  static constexpr int kOffset = 0;
  static constexpr bool kHasMinima = false;
  static constexpr bool kHasParts = false;
  static constexpr bool kHasZeros = false;
  static constexpr bool kIsAffine = false;
  static constexpr bool kIsFloat8 = false;
  static constexpr bool kHasCodebook = false;
};

/// GGUF's Q8_0 (with 128 added to a code), Q4_0, Q4_1, Q5_0 and Q5_1.
template <int kBits, bool kMinima>
struct PlainBlock : BlockTraits, PanelScales<kMinima> {
  static constexpr int kCodeBits = kBits;
  static constexpr int kOffset = kMinima ? 0 : 1 << (kBits - 1);
  static constexpr bool kHasMinima = kMinima;
  static constexpr int64_t kInputs = kBlockInputs;
  static constexpr int64_t kScaleInputs = kBlockInputs;
  static constexpr int64_t kStoredBytes = (kMinima ? 4 : 2) + kInputs * kBits / 8;
  PanelCodes<kBits> codes[1];
};

/// What the scales (and minima) of a block's parts are multiplied with.
template <int kBits, bool kMinima>
struct PartScales {
  uint8_t scales[8][kPanel];
  uint8_t minima[8][kPanel];
};
template <int kBits>
struct PartScales<kBits, false> {
  int8_t scales[16][kPanel];
};
template <>
struct PartScales<2, true> {
  uint8_t both[16][kPanel];  ///< scales in the low four bits, minima in the high ones
};

/// GGUF's Q4_K and Q5_K, with scales and minima of 32 inputs in a byte instead of six bits; Q3_K
/// (scales in a byte too) and Q6_K, which have scales of 16 inputs; and Q2_K, which has scales and
/// minima of 16 inputs.
template <int kBits, bool kMinima>
struct SuperBlock : BlockTraits, PanelScales<kMinima> {
  static constexpr int kCodeBits = kBits;
  static constexpr int kOffset = kMinima ? 0 : 1 << (kBits - 1);
  static constexpr bool kHasMinima = kMinima;
  static constexpr bool kHasParts = true;
  static constexpr int64_t kInputs = 8 * kBlockInputs;
  static constexpr int64_t kScaleInputs = kMinima && kBits > 2 ? kBlockInputs : kBlockInputs / 2;
  /// 16 scales, or eight scales and eight minima, of eight bits or six; of Q2_K 32 of four bits.
  static constexpr int64_t kPartBytes = kBits == 2 || kBits == 6 ? 16 : 12;
  static constexpr int64_t kStoredBytes = (kMinima ? 4 : 2) + kPartBytes + kInputs * kBits / 8;
  PartScales<kBits, kMinima> parts;
  PanelCodes<kBits> codes[kInputs / kBlockInputs];
};

/// FP8_128 and FP8_32: the weight of a code is the number of type E4M3 times the scale.
template <int64_t kBlock>
struct Float8Block : BlockTraits {
  static constexpr int kCodeBits = 8;
  static constexpr bool kIsFloat8 = true;
  static constexpr int64_t kInputs = kBlock;
  static constexpr int64_t kScaleInputs = kBlockInputs;
  static constexpr int64_t kStoredBytes = 4 + kInputs;
  float scales[kPanel];
  PanelCodes<8> codes[kInputs / kBlockInputs];
};

/// INT4_128 (Scale: float) and INT4_32 (Bf16): the minimum is -zero * scale, which is exact.
template <class Scale, int64_t kBlock>
struct Int4Block : BlockTraits {
  static constexpr int kCodeBits = 4;
  static constexpr bool kHasMinima = true;
  static constexpr bool kHasZeros = true;
  static constexpr int64_t kInputs = kBlock;
  static constexpr int64_t kScaleInputs = kBlockInputs;
  static constexpr int64_t kStoredBytes = sizeof(Scale) + 1 + kInputs / 2;
  Scale scales[kPanel];
  uint8_t zeros[kPanel];
  PanelCodes<4> codes[kInputs / kBlockInputs];
};

/// AFFINE8_64 (Scale: float; codes of 0 to 255) and AFFINE4_32 (Bf16; -8 to 7): the minimum is
/// added to the product, rounded once.
template <class Scale, int kBits, int64_t kBlock>
struct AffineBlock : BlockTraits {
  static constexpr int kCodeBits = kBits;
  static constexpr int kOffset = kBits == 4 ? 8 : 0;
  static constexpr bool kHasMinima = true;
  static constexpr bool kIsAffine = true;
  static constexpr int64_t kInputs = kBlock;
  static constexpr int64_t kScaleInputs = kBlockInputs;
  static constexpr int64_t kStoredBytes = 2 * sizeof(Scale) + kInputs * kBits / 8;
  Scale scales[kPanel];
  Scale minima[kPanel];
  PanelCodes<kBits> codes[kInputs / kBlockInputs];
};

/// All formats of core/formats/quantised/codebook_blocks.h: the weight is a number of the format's
/// table times the scale. 5 or 6 bits a weight, whatever the file's type takes.
template <int64_t kScale>
struct CodebookBlock : BlockTraits {
  static constexpr int kCodeBits = 4;
  static constexpr bool kHasCodebook = true;
  static constexpr int64_t kInputs = kBlockInputs;
  static constexpr int64_t kScaleInputs = kScale;
  float scales[kBlockInputs / kScale][kPanel];
  PanelCodes<4> codes[1];
};

using Int8Block = PlainBlock<8, false>;

/// Whether a block takes as many bytes in memory as in a file; scales in bytes take up to a
/// 27th more.
template <class Block>
constexpr bool kKeepsItsSize = sizeof(Block) >= kPanel* Block::kStoredBytes &&
                               sizeof(Block) * 27 <= kPanel* Block::kStoredBytes * 28;

/// Calls use(block) with a null pointer to the format's block type.
template <class Use>
decltype(auto) with_block_type(WeightFormat format, const Use& use) {
  switch (format) {
    case WeightFormat::kInt8:
      return use(static_cast<Int8Block*>(nullptr));
    case WeightFormat::kQ40:
      return use(static_cast<PlainBlock<4, false>*>(nullptr));
    case WeightFormat::kQ41:
      return use(static_cast<PlainBlock<4, true>*>(nullptr));
    case WeightFormat::kQ50:
      return use(static_cast<PlainBlock<5, false>*>(nullptr));
    case WeightFormat::kQ51:
      return use(static_cast<PlainBlock<5, true>*>(nullptr));
    case WeightFormat::kQ2K:
      return use(static_cast<SuperBlock<2, true>*>(nullptr));
    case WeightFormat::kQ3K:
      return use(static_cast<SuperBlock<3, false>*>(nullptr));
    case WeightFormat::kQ4K:
      return use(static_cast<SuperBlock<4, true>*>(nullptr));
    case WeightFormat::kQ5K:
      return use(static_cast<SuperBlock<5, true>*>(nullptr));
    case WeightFormat::kQ6K:
      return use(static_cast<SuperBlock<6, false>*>(nullptr));
    case WeightFormat::kFp8x128:
      return use(static_cast<Float8Block<4 * kBlockInputs>*>(nullptr));
    case WeightFormat::kFp8x32:
      return use(static_cast<Float8Block<kBlockInputs>*>(nullptr));
    case WeightFormat::kInt4x128:
      return use(static_cast<Int4Block<float, 4 * kBlockInputs>*>(nullptr));
    case WeightFormat::kInt4x32:
      return use(static_cast<Int4Block<Bf16, kBlockInputs>*>(nullptr));
    case WeightFormat::kAffine8x64:
      return use(static_cast<AffineBlock<float, 8, 2 * kBlockInputs>*>(nullptr));
    case WeightFormat::kAffine4x32:
      return use(static_cast<AffineBlock<Bf16, 4, kBlockInputs>*>(nullptr));
    case WeightFormat::kIq1M:
    case WeightFormat::kIq2Xs:
    case WeightFormat::kIq2S:
    case WeightFormat::kNvfp4:
    case WeightFormat::kFp4x16:
      return use(static_cast<CodebookBlock<kBlockInputs / 2>*>(nullptr));
    case WeightFormat::kIq1S:
    case WeightFormat::kIq2Xxs:
    case WeightFormat::kIq3Xxs:
    case WeightFormat::kIq3S:
    case WeightFormat::kIq4Nl:
    case WeightFormat::kIq4Xs:
    case WeightFormat::kTq1:
    case WeightFormat::kTq2:
    case WeightFormat::kMxfp4:
    case WeightFormat::kFp4x32:
    case WeightFormat::kNf4x32:
      return use(static_cast<CodebookBlock<kBlockInputs>*>(nullptr));
    default:
      break;
  }
  fail_check("is_in_blocks(format)", __FILE__, __LINE__, "weights that are not in blocks");
}

/// The 16 numbers that the codes of a format stand for; nullptr where it has no such table.
const float* codebook_numbers(WeightFormat format);

/// Rounds rows [n, in] float32 to int8 blocks, as outputs first .. of the panels: a block's scale
/// is its largest magnitude / 127, as llama.cpp quantises Q8_0.
void quantize_rows_int8(const at::Tensor& rows, int64_t first, at::Tensor& panels);
/// Writes one output from its blocks as they are in a file (or scaled_blocks.h); `in`: whole
/// blocks.
void pack_stored_row(const std::byte* row, int64_t in, int64_t output, WeightFormat format,
                     at::Tensor& panels);
/// The weights of outputs `ids`, one after the other: out [ids, in].
void unpack_block_rows(const at::Tensor& panels, WeightFormat format, std::span<const int32_t> ids,
                       float* out, int64_t in);

}  // namespace specdec
