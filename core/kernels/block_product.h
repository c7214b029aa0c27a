#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/kernels/panels.h"

namespace specdec {

/// Up to 32 inputs of a row as integers of -127 to 127 times a scale: the largest magnitude / 127.
/// They are rounded to the nearest integer, to the even one between two.
struct QuantizedBlock {
  uint32_t words[kBlockInputs / 4];  ///< four signed bytes each, low first
  float scale;
  /// The sums of the bytes that meet weights of one scale (all, or each half): times the scale, and
  /// times minus the offset of the weights' codes.
  float scaled_sums[2];
  int32_t starts[2];
};

/// Rows that a product reads and writes, in the memory of others.
template <class T>
struct ProductRows {
  const T* input;  ///< [nodes, in]
  T* out;          ///< [nodes, out_size], columns of rows of out_stride numbers
  int64_t nodes, in;
  int64_t out_size, out_stride;
};

/// A product of rows with weights in blocks: input [n, in] float32 times panels of `format`. With
/// float32 activations each weight is widened and multiplied as float32 weights are. With int8: the
/// products of inputs whose weights share a scale (32; 16 in Q2_K, Q3_K and Q6_K) are summed as
/// integers, which is exact, and the sum times the product of the two scales (rounded once) is
/// added with one fused multiply-add, then, where weights have minima (or zero points), the minimum
/// times the inputs' scaled sum with another; inputs in their order. Either way an output's bits
/// depend on its row and its weights alone.
class BlockProduct {
 public:
  /// Keeps a pointer to `panels`. int8 activations are quantised here, into memory of the calling
  /// thread that the next product uses again.
  BlockProduct(const ProductRows<float>& rows, const at::Tensor& panels, WeightFormat format,
               ActivationFormat activations);
  /// Outputs of the panels begin to end.
  void run(int64_t begin, int64_t end) const;

 private:
  ProductRows<float> rows_;
  WeightFormat format_;
  const at::Tensor& panels_;
  const QuantizedBlock* quantized_ = nullptr;  ///< [blocks, n]; nullptr = float32 activations
};

}  // namespace specdec
