#pragma once
#include <ATen/core/Tensor.h>

#include "core/kernels/panels.h"

namespace specdec {

using at::Tensor;

/// What rows of a matrix hold, as it is arranged for tensor cores.
struct CodesAndScales {
  /// [out, in] int16, the bits of a weight; in blocks uint8, integers that are not negative
  Tensor codes;
  /// [out, bytes]: what belongs to the first 64 inputs, and so on, as chunk_scale_bytes says;
  /// undefined without blocks
  Tensor scales;
};

/// Whether there are codes_and_scales() of a format.
bool has_codes(WeightFormat format);
/// Bytes of an output's scales for 64 inputs; 0 = none. Q8_0, Q4_0 and Q5_0: a float16 number for
/// each 32 inputs; Q4_1 and Q5_1: two, with the minimum. Q4_K and Q5_K: the block's scale and
/// minimum, float16; then a byte each, a scale and a minimum of either 32 inputs. Q2_K: the same
/// two numbers; then a byte for each 16 inputs, the scale in its low four bits, the minimum in the
/// others. Q3_K and Q6_K: four scales of 16 inputs, int8; the block's scale, float16; two zeros.
/// FP8_128: the float32 scale; FP8_32: one for each 32 inputs. INT4_128: the float32 scale, the
/// zero point, three zeros; INT4_32 for each 32 inputs the bfloat16 scale, the zero point, a zero.
/// With a codebook: a float32 number for each 16 or 32. AFFINE8_64: the float32 scale and minimum;
/// AFFINE4_32: both of each 32 inputs, bfloat16.
int64_t chunk_scale_bytes(WeightFormat format);

/// Codes and scales of rows in the layout kRows (weight_rows.h), in a format that has them.
CodesAndScales codes_and_scales(const Tensor& rows, WeightFormat format);
/// The rows that codes_and_scales() splits into these parts.
Tensor rows_of_codes(const CodesAndScales& parts, WeightFormat format);

}  // namespace specdec
