#pragma once
// Weights that are numbers of a table of 16 times a float32 scale: all formats of
// core/formats/quantised/codebook_blocks.h. A kernel gets the table of its format with its task.
#include "core/kernels/cuda/fragments.cuh"

namespace specdec::cuda {

enum class CodebookTable : int32_t {
  kIq1,
  kIq2,
  kIq3Xxs,
  kIq3S,
  kIq4,
  kTernary,
  kDoubledFp4,
  kFp4,
  kNf4
};

/// The tables that codebook_of() gives; each but the last is exact in bfloat16.
constexpr float kCodebookNumbers[][16] = {
    {-1.125F, -0.875F, -0.125F, 0.125F, 0.875F, 1.125F},
    {8, 25, 43, 0, -8, -25, -43},
    {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62},
    {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15},
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
    {-1, 0, 1, 2},
    {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12},
    {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6},
    {-1.0F, -0.6961928009986877F, -0.5250730514526367F, -0.39491748809814453F,
     -0.28444138169288635F, -0.18477343022823334F, -0.09105003625154495F, 0.0F,
     0.07958029955625534F, 0.16093020141124725F, 0.24611230194568634F, 0.33791524171829224F,
     0.44070982933044434F, 0.5626170039176941F, 0.7229568362236023F, 1.0F}};

/// Sixteen bytes, one for each code.
struct CodeBytes {
  uint32_t word[4];

  /// Bytes of the four codes in the lower half of `codes`.
  __device__ uint32_t of(uint32_t codes) const {
    // By the lower three bits of a code a byte of either eight; by its fourth bit one of these.
    const uint32_t places = codes & 0x7777U;
    const uint32_t first = __byte_perm(word[0], word[1], places);
    const uint32_t second = __byte_perm(word[2], word[3], places);
    return __byte_perm(first, second, 0x3210U | (codes & 0x8888U) >> 1U);
  }
};

/// One bfloat16 part of the numbers of a table. Looked up in registers: lanes of a warp read any of
/// them at once.
struct NumberPart {
  CodeBytes low, high;

  void set(uint32_t code, uint32_t bits) {
    low.word[code / 4] |= (bits & 255U) << (8 * (code % 4));
    high.word[code / 4] |= (bits >> 8U) << (8 * (code % 4));
  }
  __device__ uint32_t bits(uint32_t code) const {
    return (low.of(code) & 255U) | (high.of(code) & 255U) << 8U;
  }
  /// Bits of the numbers of a step's eight codes, two numbers a word.
  __device__ void look_up(uint32_t codes, uint32_t (&words)[4]) const {
    const uint32_t upper = codes >> 16U;
    const uint32_t low_first = low.of(codes);
    const uint32_t high_first = high.of(codes);
    const uint32_t low_second = low.of(upper);
    const uint32_t high_second = high.of(upper);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {  // of words
      const uint32_t bytes = pair == 0 ? 0x5140U : 0x7362U;
      const uint32_t first = __byte_perm(low_first, high_first, bytes);
      const uint32_t second = __byte_perm(low_second, high_second, bytes);
      words[2 * pair] = __byte_perm(first, second, 0x5410U);
      words[2 * pair + 1] = __byte_perm(first, second, 0x7632U);
    }
  }
};

/// Scales: a float32 number of kInputs inputs each.
template <int kInputs, int kNumberParts>
struct CodebookFragments : BlockFragments {
  static constexpr int kFragments = 1;
  static constexpr int kParts = kNumberParts;
  static constexpr int kScaleSteps = kInputs / kStepInputs;
  static constexpr int kScaleWords = kChunkInputs / kInputs;
  static constexpr int kOutputTiles = kParts == 1 ? 2 : 1;
  static constexpr int kRowTiles = kParts == 1 ? 8 : 4;  // all that registers hold

  explicit CodebookFragments(CodebookTable table) {
    for (uint32_t code = 0; code < 16; ++code) {
      uint32_t numbers[kParts];
      split(kCodebookNumbers[static_cast<int>(table)][code], numbers);
      for (int part = 0; part < kParts; ++part) {
        parts_[part].set(code, numbers[part]);
      }
    }
  }

  __device__ static uint32_t code(const WeightFragment* chunk, int lane, int step, int w, int i) {
    return nibble(chunk[lane].word[step], w, i);
  }
  /// The sum of the parts, which is exact from the last one on.
  __device__ float weight(uint32_t code) const {
    float number = device::float_of(parts_[kParts - 1].bits(code) << 16U);
#pragma unroll
    for (int part = kParts - 2; part >= 0; --part) {
      number += device::float_of(parts_[part].bits(code) << 16U);
    }
    return number;
  }
  __device__ void expand(const WeightFragment* fragments, int step,
                         uint32_t (&words)[kParts][4]) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      parts_[part].look_up(fragments[0].word[step], words[part]);
    }
  }
  __device__ static float scale(const uint32_t* words, int group) {
    return device::float_of(words[group]);
  }

 private:
  NumberPart parts_[kParts] = {};
};

/// Table and scales of a format with a codebook.
struct CodebookFormat {
  CodebookTable table;
  int32_t scale_inputs;
};

/// Formats with a codebook in the order of WeightFormat, from kIq1S on.
constexpr CodebookFormat kCodebookFormats[] = {
    {CodebookTable::kIq1, 32},        {CodebookTable::kIq1, 16},
    {CodebookTable::kIq2, 32},        {CodebookTable::kIq2, 16},
    {CodebookTable::kIq2, 16},        {CodebookTable::kIq3Xxs, 32},
    {CodebookTable::kIq3S, 32},       {CodebookTable::kIq4, 32},
    {CodebookTable::kIq4, 32},        {CodebookTable::kTernary, 32},
    {CodebookTable::kTernary, 32},    {CodebookTable::kDoubledFp4, 32},
    {CodebookTable::kDoubledFp4, 16}, {CodebookTable::kFp4, 16},
    {CodebookTable::kFp4, 32},        {CodebookTable::kNf4, 32}};

/// Calls use(format) with the fragments of a format with a codebook; `none` for others.
template <class Result, class Use>
Result with_codebook(WeightFormat format, Result none, const Use& use) {
  const int index = static_cast<int>(format) - static_cast<int>(WeightFormat::kIq1S);
  if (index < 0 || format > WeightFormat::kNf4x32) {
    return none;
  }
  const CodebookFormat& found = kCodebookFormats[index];
  if (found.table == CodebookTable::kNf4) {
    return use(CodebookFragments<32, 3>(found.table));
  }
  return found.scale_inputs == 16 ? use(CodebookFragments<16, 1>(found.table))
                                  : use(CodebookFragments<32, 1>(found.table));
}

}  // namespace specdec::cuda
