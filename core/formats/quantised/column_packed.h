#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/formats/quantised/compressed_matrix.h"

namespace specdec {

class JsonKeys;

// GPTQ's and AWQ's matrices hold inputs as rows: NAME.qweight are the codes, in words of 32 bits,
// NAME.scales [groups, outputs] their scales, NAME.qzeros [groups, outputs in words] their zero
// points. GPTQ packs inputs, the first one lowest, AWQ outputs in the order 0, 2, 4, 6, 1, 3, 5, 7.

/// What a quantization_config of either says. Throws WeightsError naming the key and what of it is
/// not supported.
CompressionScheme read_gptq(const JsonKeys& keys);
CompressionScheme read_awq(const JsonKeys& keys);

/// Whether codes are packed so.
bool is_column_packed(const CompressionScheme& scheme);

/// The matrix of a module whose codes are in a tensor, with what stands beside them; symmetric
/// where all its zero points are the middle of the codes, as GPTQ writes them with `sym`. Throws
/// WeightsError naming folder and tensor: missing ones, shapes and types that do not fit.
CompressedMatrix describe_columns(const TensorFiles& files, const TensorEntry& codes,
                                  const std::string& module, const CompressionScheme& scheme);

/// A matrix of GPTQ or AWQ in the form of other matrices: outputs as rows, a byte for each code.
class UnpackedMatrix {
 public:
  explicit UnpackedMatrix(const CompressedMatrix& stored);
  UnpackedMatrix(const UnpackedMatrix&) = delete;
  UnpackedMatrix& operator=(const UnpackedMatrix&) = delete;

  const CompressedMatrix& matrix() const { return matrix_; }

 private:
  void unpack_codes(const CompressedMatrix& stored);
  /// Scales and zero points, by group, or of each input where the groups have an order of theirs.
  void unpack_scales(const CompressedMatrix& stored);

  CompressedMatrix matrix_;
  TensorEntry codes_, scales_, zeros_;
  std::vector<std::byte> code_bytes_, scale_bytes_, zero_bytes_;
};

}  // namespace specdec
