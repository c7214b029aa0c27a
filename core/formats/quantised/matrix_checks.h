#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/formats/quantised/compressed_matrix.h"
#include "core/formats/safetensors.h"

namespace specdec {

/// Most rows and columns of a compressed matrix.
inline constexpr int64_t kMaxMatrixSize = int64_t{1} << 24;

/// Throws a WeightsError that names folder and tensor.
[[noreturn]] void fail_tensor(const TensorFiles& files, const TensorEntry& entry,
                              const std::string& problem);

/// Checks the tensors of one compressed matrix. Complaints are fail_tensor's. Borrows.
class MatrixChecks {
 public:
  MatrixChecks(const TensorFiles& files, const CompressedMatrix& matrix)
      : files_(files), matrix_(matrix) {}

  [[noreturn]] void fail(const TensorEntry& entry, const std::string& problem) const {
    fail_tensor(files_, entry, problem);
  }
  /// Fails unless rows and columns are of a size that is supported.
  void require_size() const;
  /// Fails unless the tensor is there and has the shape, but for dimensions of 1; in a stack, the
  /// number of its matrices comes before the shape.
  void require(const TensorEntry* entry, const char* part, std::vector<int64_t> shape) const;
  void require_type(const TensorEntry& entry, const std::vector<DType>& types) const;

 private:
  const TensorFiles& files_;
  const CompressedMatrix& matrix_;
};

}  // namespace specdec
