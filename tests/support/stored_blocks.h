#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/formats/dtype.h"
#include "core/kernels/linear.h"
#include "core/kernels/stored_rows.h"

namespace specdec {

/// All formats of weights in blocks of integers.
inline constexpr WeightFormat kIntegerBlockFormats[] = {
    WeightFormat::kInt8,       WeightFormat::kQ40,       WeightFormat::kQ41,
    WeightFormat::kQ50,        WeightFormat::kQ51,       WeightFormat::kQ2K,
    WeightFormat::kQ3K,        WeightFormat::kQ4K,       WeightFormat::kQ5K,
    WeightFormat::kQ6K,        WeightFormat::kInt4x128,  WeightFormat::kInt4x32,
    WeightFormat::kAffine8x64, WeightFormat::kAffine4x32};
/// All others in blocks.
inline constexpr WeightFormat kFloatBlockFormats[] = {
    WeightFormat::kFp8x128, WeightFormat::kFp8x32, WeightFormat::kIq1S,  WeightFormat::kIq1M,
    WeightFormat::kIq2Xxs,  WeightFormat::kIq2Xs,  WeightFormat::kIq2S,  WeightFormat::kIq3Xxs,
    WeightFormat::kIq3S,    WeightFormat::kIq4Nl,  WeightFormat::kIq4Xs, WeightFormat::kTq1,
    WeightFormat::kTq2,     WeightFormat::kMxfp4,  WeightFormat::kNvfp4, WeightFormat::kFp4x16,
    WeightFormat::kFp4x32,  WeightFormat::kNf4x32};

/// Random rows as they are stored, and what they mean: codes * scales + minima.
struct StoredRows {
  WeightFormat format;
  int64_t rows, in;
  int64_t scale_inputs;  ///< that share a scale
  std::vector<std::vector<std::byte>> bytes;
  Tensor codes;   ///< [rows, in]
  Tensor scales;  ///< [rows, in / scale_inputs]
  Tensor minima;  ///< [rows, in / scale_inputs]; zeros in formats without them
  bool has_minima;

  Tensor values() const;  ///< [rows, in]
  /// Of each weight, [rows, in]; with minima, of both numbers that it is the difference of.
  Tensor magnitudes() const;
  Linear packed(const Placement& place = {}) const;
};

enum class StoredCodes {
  kAny,
  kExtreme,  ///< those of a block are all the largest, or all the smallest
};

StoredRows random_stored_rows(WeightFormat format, int64_t rows, int64_t in, uint64_t seed,
                              StoredCodes which = StoredCodes::kAny);

}  // namespace specdec
