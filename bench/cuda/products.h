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

/// All kernels of products.
std::vector<ProductKernel> product_kernels();

/// Experts' matrices of outputs x in, and the largest number of tokens, of which each goes to
/// `chosen` of `count` experts.
struct ExpertSize {
  int32_t outputs, in, count, chosen, tokens;
};

/// Experts' random matrices on the device, with inputs and room for the results.
struct PreparedExperts {
  DeviceArray out;  ///< [tokens * chosen, outputs]
  /// Multiplies `tokens` tokens with the matrices that choice `choice` of experts says.
  std::function<void(int choice, int tokens, void* stream)> run;
  /// Bytes of the matrices that a choice needs, on average over choices 0, 1, ...
  std::function<size_t(int tokens)> matrix_bytes;
};

/// A kernel that multiplies with experts' matrices of one format.
struct ExpertKernel {
  std::string format, kernel;
  int32_t block_inputs;  ///< `in` is a multiple of it
  std::function<PreparedExperts(const ExpertSize&, int choices)> prepare;
};

/// All kernels of products with experts.
std::vector<ExpertKernel> expert_kernels();

}  // namespace specdec::cuda
