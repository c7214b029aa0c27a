#pragma once
#include <functional>
#include <string>
#include <vector>

#include "bench/cuda/device.h"

namespace specdec::cuda {

/// outputs x in, and the largest number of rows.
struct ProductSize {
  int32_t outputs, in, rows;
};

/// Copies of a random matrix on the device, with inputs and room for the results.
struct PreparedProduct {
  size_t matrix_bytes;  ///< that a product reads
  DeviceArray out;      ///< [rows, outputs]
  /// Multiplies `rows` rows with copy `copy`.
  std::function<void(int copy, int rows, void* stream)> run;
};

/// A kernel that multiplies with a matrix of one format.
struct ProductKernel {
  std::string format, kernel;
  int32_t block_inputs;                             ///< `in` is a multiple of it
  std::function<size_t(const ProductSize&)> bytes;  ///< of a matrix
  std::function<PreparedProduct(const ProductSize&, int copies)> prepare;
};

/// All of them.
std::vector<ProductKernel> product_kernels();

}  // namespace specdec::cuda
