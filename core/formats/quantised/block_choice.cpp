#include <algorithm>
#include <cmath>
#include <vector>

#include "core/formats/float_values.h"
#include "core/formats/gguf/gguf_quantize.h"
#include "core/formats/quantised/codebook_blocks.h"
#include "core/formats/quantised/compressed_matrix.h"

namespace specdec {
namespace {

using Codes = CompressionScheme::Codes;

constexpr int64_t kChoiceCodes = 32;  ///< of a block of Q4_1, Q5_1 or AFFINE4_32

/// Whether the inputs of a row are whole blocks of so many, each with one scale.
bool has_whole_blocks(const CompressedMatrix& matrix, int64_t inputs) {
  return matrix.columns % inputs == 0 &&
         (matrix.scale_columns() == 1 || matrix.scheme.columns_per_scale % inputs == 0);
}

bool fits_half(float value) { return half_value(half_bits(value)) == value; }

/// Whether scales and minima keep the values of their groups in half precision. The scale of a
/// group of equal weights may be any number: its codes are 0, and MLX writes some 1e-7 there.
bool fit_halves(const CompressedMatrix& matrix) {
  const std::vector<float> minima = float_values(*matrix.minima);
  const std::vector<float> scales = float_values(*matrix.scales);
  const auto codes = static_cast<size_t>(matrix.scheme.columns_per_scale * matrix.scheme.bits) / 8;
  for (size_t i = 0; i < scales.size(); ++i) {
    const auto group = matrix.codes->bytes.subspan(i * codes, codes);
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    if (!fits_half(minima[i]) ||
        (!fits_half(scales[i]) &&
         !(std::isfinite(scales[i]) && std::all_of(group.begin(), group.end(), is_zero)))) {
      return false;
    }
  }
  return true;
}

bool has_affine8_blocks(const CompressedMatrix& matrix) {
  return has_whole_blocks(matrix, block_values(DType::kAffine8x64));
}

/// Type of the blocks for codes that have minima.
DType block_type_with_minima(const CompressedMatrix& matrix) {
  constexpr int64_t kBitsOfQ41 = 4, kBitsOfQ51 = 5;
  const int64_t bits = matrix.scheme.bits;
  const bool narrow = has_whole_blocks(matrix, kChoiceCodes);
  const DType scales = matrix.scales->dtype;
  if (matrix.scheme.centred) {
    return narrow && scales == DType::kBF16 && matrix.minima->dtype == scales ? DType::kAffine4x32
                                                                              : DType::kF32;
  }
  if (bits <= kBitsOfQ51 && narrow && fit_halves(matrix)) {
    return bits <= kBitsOfQ41 ? DType::kQ41 : DType::kQ51;
  }
  // A code times a float32 scale may have to be rounded.
  const bool exact = scales != DType::kF32 && has_affine8_blocks(matrix);
  return exact ? DType::kAffine8x64 : DType::kF32;
}

/// Whether the codes stand for the numbers of NF4_32.
bool has_nf4_numbers(const CompressedMatrix& matrix) {
  const std::vector<float> numbers = float_values(*matrix.numbers);
  const Codebook& nf4 = codebook_of(DType::kNf4x32);
  return std::equal(numbers.begin(), numbers.end(), nf4.begin(), nf4.end());
}

}  // namespace

DType block_type(const CompressedMatrix& matrix) {
  if (matrix.factors != nullptr) {
    return DType::kF32;
  }
  if (matrix.minima != nullptr) {
    return block_type_with_minima(matrix);
  }
  const bool wide = has_whole_blocks(matrix, block_values(DType::kInt4x128));
  const bool narrow = has_whole_blocks(matrix, block_values(DType::kInt4x32));
  const DType scales = matrix.scales->dtype;
  const bool symmetric = matrix.scheme.symmetric;
  if (matrix.scheme.codes == Codes::kFloat4) {
    const bool pairs = matrix.columns % 32 == 0 && has_whole_blocks(matrix, 16);
    return narrow ? DType::kFp4x32 : pairs ? DType::kFp4x16 : DType::kF32;
  }
  if (matrix.numbers != nullptr) {
    return narrow && has_nf4_numbers(matrix) ? DType::kNf4x32 : DType::kF32;
  }
  if (matrix.scheme.codes == Codes::kFloat8) {
    return wide ? DType::kFp8x128 : narrow ? DType::kFp8x32 : DType::kF32;
  }
  if (matrix.scheme.bits == 8) {
    if (narrow && symmetric && scales == DType::kF16) {
      return DType::kQ80;
    }
    const bool exact = symmetric || scales != DType::kF32;  // zero * scale
    return exact && has_affine8_blocks(matrix) ? DType::kAffine8x64 : DType::kF32;
  }
  if (wide && (symmetric || scales != DType::kF32)) {  // else zero * scale may have to be rounded
    return DType::kInt4x128;
  }
  if (narrow && scales == DType::kBF16) {
    return DType::kInt4x32;
  }
  return narrow && symmetric && scales == DType::kF16 ? DType::kQ40 : DType::kF32;
}

}  // namespace specdec
