#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/compression_scheme.h"
#include "core/formats/safetensors.h"

namespace specdec {

/// The tensors of a checkpoint of compressed-tensors, its matrices as float32: each code, less its
/// zero point, times its scale, exactly (the library rounds the product to the scales' type). A
/// matrix is made when `find` first names it and stays in memory, 4 bytes a weight, as long as this
/// reader; before, its entry has no bytes. Tensors that are not compressed are those of the file.
class CompressedTensors final : public TensorFiles {
 public:
  /// Throws WeightsError naming folder and tensor: shapes and types of codes, scales and zero
  /// points that do not fit each other or the scheme.
  CompressedTensors(std::shared_ptr<const TensorFiles> stored, const CompressionScheme& scheme);

  const TensorEntry* find(std::string_view name) const override;
  std::vector<const TensorEntry*> tensors() const override;
  void release(const TensorEntry& entry, size_t begin = 0, size_t size = SIZE_MAX) const override;
  const std::filesystem::path& folder() const override { return stored_->folder(); }
  std::string_view described_by() const override { return stored_->described_by(); }
  std::vector<std::pair<std::string, std::string>> missing() const override;
  std::string stored_name(const std::string& name) const override;

 private:
  struct Matrix {
    const TensorEntry* codes = nullptr;
    const TensorEntry* scales = nullptr;
    const TensorEntry* zeros = nullptr;
    TensorEntry values;
    std::unique_ptr<float[]> memory;  ///< of the values; null until they are made
  };

  [[noreturn]] void fail(const TensorEntry& entry, const std::string& problem) const;
  void add(const TensorEntry& codes, const std::string& module);
  std::vector<int64_t> read_shape(const std::string& module) const;
  void check(const Matrix& matrix) const;
  void decode(Matrix& matrix) const;
  /// Makes values of a row's codes.
  void scale_row(const Matrix& matrix, const std::vector<float>& scales, int64_t row,
                 std::span<float> values) const;
  int64_t zero_point(const Matrix& matrix, int64_t row, int64_t group) const;
  /// Parts of a matrix with a scale each.
  int64_t scale_rows(const Matrix& matrix) const;
  int64_t scale_columns(const Matrix& matrix) const;

  std::shared_ptr<const TensorFiles> stored_;
  CompressionScheme scheme_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Matrix, std::less<>> matrices_;
  std::vector<const TensorEntry*> plain_;  ///< those of the file that are no part of a matrix
};

}  // namespace specdec
