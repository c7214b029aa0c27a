#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/formats/dtype.h"

namespace specdec {

/// What a file says of a tensor beside its bytes.
struct TensorLayout {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  ///< row-major, [out, in]

  int64_t values() const {
    int64_t count = 1;
    for (const int64_t size : shape) {
      count *= size;
    }
    return count;
  }
  /// Bytes of all values; rows are whole blocks.
  uint64_t bytes() const {
    return static_cast<uint64_t>(values() / block_values(dtype) * dtype_bytes(dtype));
  }
};

}  // namespace specdec
