#pragma once
#include <cstdint>
#include <vector>

#include "core/formats/quantised/compressed_matrix.h"

namespace specdec {

/// A class of torchao's, or a layout of its AffineQuantizedTensor.
struct TorchaoClass {
  const char* name;
  CompressionScheme::Codes codes;
  const char* codes_part;
  const char* scales_part;
};
inline constexpr TorchaoClass kTorchaoClasses[] = {
    {"Float8Tensor", CompressionScheme::Codes::kFloat8, "qdata", "scale"},
    {"Int8Tensor", CompressionScheme::Codes::kTorchaoBytes, "qdata", "scale"},
    {"IntxUnpackedToInt8Tensor", CompressionScheme::Codes::kTorchaoBytes, "qdata", "scale"},
    {"Int4Tensor", CompressionScheme::Codes::kTorchaoPairs, "qdata", "scale"},
    {"Int4TilePackedTo4dTensor", CompressionScheme::Codes::kTorchaoTiles, "qdata",
     "scale_and_zero"},
    {"PlainAQTTensorImpl", CompressionScheme::Codes::kTorchaoBytes, "int_data", "scale"},
    {"QDQTensorImpl", CompressionScheme::Codes::kTorchaoBytes, "int_data", "scale"},
    {"Float8AQTTensorImpl", CompressionScheme::Codes::kFloat8, "float8_data", "scale"},
    {"TensorCoreTiledAQTTensorImpl", CompressionScheme::Codes::kTorchaoTiles, "packed_weight",
     "scale_and_zero"}};

/// The tiles of codes that tensor cores read.
struct TorchaoTiles {
  static constexpr int64_t kRows = 8;
  static constexpr int64_t kColumns = 16;
  static constexpr int64_t kLanes = 32;
};

/// Zero points of type I8, I32, I64, F32, F16 or BF16.
std::vector<float> torchao_zero_points(const TensorEntry& entry);

/// A matrix of torchao's (core/formats/quantised/torchao_matrix.h) as others are stored: a byte for
/// each code, outputs as rows.
class UnwrappedMatrix {
 public:
  /// Throws WeightsError naming the tensor with a code of more bits than it should have.
  explicit UnwrappedMatrix(const CompressedMatrix& stored);
  UnwrappedMatrix(const UnwrappedMatrix&) = delete;
  UnwrappedMatrix& operator=(const UnwrappedMatrix&) = delete;

  const CompressedMatrix& matrix() const { return matrix_; }

 private:
  void unwrap_bytes(const CompressedMatrix& stored);
  void unwrap_pairs(const CompressedMatrix& stored);
  void unwrap_tiles(const CompressedMatrix& stored);
  /// Takes [rows, groups] scales and minima as float32.
  void set_groups(std::vector<float> scales, std::vector<float> minima);

  CompressedMatrix matrix_;
  TensorEntry codes_, scales_, zeros_, minima_;
  std::vector<uint8_t> code_bytes_, zero_bytes_;
  std::vector<float> scale_values_, minimum_values_;
};

}  // namespace specdec
