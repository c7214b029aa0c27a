#pragma once
#include <string>
#include <vector>

#include "core/formats/quantised/compressed_matrix.h"

namespace specdec {

class JsonKeys;

// Matrices of bitsandbytes as transformers writes them. In 4 bits NAME.weight [rows * columns / 2,
// 1] are the codes in pairs, the first one in the high half; NAME.weight.quant_state.bitsandbytes__
// nf4 or fp4 is a JSON text with the shape and the size of the blocks that share a scale, row after
// row; NAME.weight.quant_map are the 16 numbers that codes stand for; NAME.weight.absmax the
// scales: float32, or ("nested") codes of 8 bits that nested_quant_map, nested_absmax and
// nested_offset widen. In 8 bits NAME.weight is int8 and NAME.SCB, over 127, a scale for each row
// (Dettmers et al., 2022, arXiv:2208.07339; 2023, arXiv:2305.14314).

/// What a quantization_config says. Throws WeightsError naming the key: neither 4 nor 8 bits.
CompressionScheme read_bitsandbytes(const JsonKeys& keys);

/// Whether codes are stored so.
bool is_bitsandbytes(const CompressionScheme& scheme);

/// The matrix whose codes are in a tensor, with what stands beside them. Throws WeightsError naming
/// folder and tensor: missing ones, shapes, types and texts that do not fit. Blocks may reach over
/// the ends of rows.
CompressedMatrix describe_bitsandbytes(const TensorFiles& files, const TensorEntry& codes,
                                       const CompressionScheme& scheme);

/// A matrix of bitsandbytes in the form of other matrices: a byte for each code, float32 scales.
class WidenedMatrix {
 public:
  explicit WidenedMatrix(const CompressedMatrix& stored);
  WidenedMatrix(const WidenedMatrix&) = delete;
  WidenedMatrix& operator=(const WidenedMatrix&) = delete;

  const CompressedMatrix& matrix() const { return matrix_; }

 private:
  CompressedMatrix matrix_;
  TensorEntry codes_, scales_;
  std::vector<std::byte> code_bytes_;
  std::vector<float> scale_values_;
};

}  // namespace specdec
