#pragma once
#include "core/kernels/device/portable.h"

namespace specdec {

/// How a Linear's weights lie in memory. With float32 activations a product has the bits that a
/// float32 (float64) Linear of the same numbers gives: a format changes bytes and speed, not how
/// sums are rounded. CUDA kernels take all but kFloat64.
enum class WeightFormat : int32_t {
  kFloat64,
  kFloat32,
  kBFloat16,
  kFloat16,
  kInt8,  ///< blocks of 32 inputs: integers of -127 to 127 times a float16 scale (GGUF's Q8_0)
  kQ40,   ///< GGUF's Q4_0: integers of -8 to 7 times a float16 scale
  kQ41,   ///< GGUF's Q4_1: integers of 0 to 15 times a float16 scale, plus a float16 minimum
  kQ50,   ///< GGUF's Q5_0 and Q5_1: the same with five bits
  kQ51,
  kQ2K,  ///< GGUF's Q2_K: as Q4_1 with two bits, but the scales and minima of 16 inputs are
         ///< integers of 0 to 15 times float16 numbers of 256 inputs
  kQ3K,  ///< GGUF's Q3_K: integers of -4 to 3 times a scale of 16 inputs: one of -32 to 31 times a
         ///< float16
  kQ4K,  ///< GGUF's Q4_K and Q5_K: as Q4_1 and Q5_1, but the scales and minima of 32 inputs are
  kQ5K,  ///< integers of 0 to 63 times float16 numbers of 256 inputs
  kQ6K,  ///< GGUF's Q6_K: integers of -32 to 31 times a scale of 16 inputs: an int8 times a float16
  // Blocks that matrices of quantised folders become (core/formats/quantised/scaled_blocks.h).
  kFp8x128,   ///< FP8 (E4M3) numbers times a float32 scale of 128 inputs
  kFp8x32,    ///< the same of 32 inputs
  kInt4x128,  ///< integers of 0 to 15, less those of 128 inputs' zero point, times a float32 scale
  kInt4x32,   ///< the same of 32 inputs, with a bfloat16 scale
  // Numbers of a table of 16 times a float32 scale of 16 or 32 inputs
  // (core/formats/quantised/codebook_blocks.h): GGUF's, and those that matrices of quantised
  // folders become.
  kIq1S,
  kIq1M,
  kIq2Xxs,
  kIq2Xs,
  kIq2S,
  kIq3Xxs,
  kIq3S,
  kIq4Nl,
  kIq4Xs,
  kTq1,
  kTq2,
  kMxfp4,
  kNvfp4,
  kFp4x16,
  kFp4x32,
  kNf4x32,
  // Integers times a scale plus a minimum (core/formats/quantised/scaled_blocks.h).
  kAffine8x64,  ///< of 0 to 255; float32 scale and minimum of 64 inputs
  kAffine4x32,  ///< of -8 to 7; bfloat16 scale and minimum of 32 inputs
};

}  // namespace specdec
