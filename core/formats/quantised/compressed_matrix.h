#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/formats/quantised/compression_scheme.h"
#include "core/formats/safetensors.h"

namespace specdec {

/// A matrix as a quantised checkpoint holds it, or a stack of them, as of experts.
/// Shapes and types of its tensors fit each other and the scheme.
struct CompressedMatrix {
  CompressionScheme scheme;
  const TensorEntry* codes = nullptr;
  const TensorEntry* scales = nullptr;
  const TensorEntry* zeros = nullptr;   ///< nullptr: symmetric
  const TensorEntry* whole = nullptr;   ///< the scale of the whole matrix, where there is one
  const TensorEntry* minima = nullptr;  ///< added to code * scale, where there are some
  /// [columns], which a value is multiplied with last: of inputs that are scaled first (AWQ of
  /// torchao), where there are some.
  const TensorEntry* factors = nullptr;
  // Tensors of column_packed.h's matrices.
  const TensorEntry* zero_words = nullptr;
  const TensorEntry* order = nullptr;  ///< the group of each input; nullptr: one after the other
  // Tensors of bitsandbytes.h's matrices.
  const TensorEntry* numbers = nullptr;  ///< [16] float32 that codes of 4 bits stand for
  /// Scales that are codes of 8 bits themselves: numbers[code] * scales[i / block] + offset.
  struct Nested {
    const TensorEntry* numbers = nullptr;
    const TensorEntry* scales = nullptr;
    int64_t block = 0;  ///< 0 = they are not
    float offset = 0.0F;
  };
  Nested nested;
  int64_t scale_block = 0;  ///< codes that share a scale in the file, over the ends of rows
  int64_t rows = 0, columns = 0;
  /// Matrices of a stack, whose number is the first dimension of all tensors; 0 = no stack.
  int64_t stacked = 0;

  /// Parts with a scale each, along the rows and along the columns.
  int64_t scale_rows() const;
  int64_t scale_columns() const;
};

/// The blocks that hold a matrix with all its values, at about its stored size: by the types of
/// codes and scales and how many inputs share one. F32 where there are none.
DType block_type(const CompressedMatrix& matrix);

/// Writes a matrix, row after row, or those of a stack, as blocks of `type`, which block_type says
/// of it, or as float32: each code, less its zero point, times its scale, rounded once (the library
/// rounds it to the scales' type), and the minimum of its part added.
void write_values(const CompressedMatrix& matrix, DType type, std::span<std::byte> out);

}  // namespace specdec
