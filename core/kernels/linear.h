#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "core/kernels/panels.h"

namespace specdec {

using at::Tensor;

/// The format of weights of a dtype: float64, float32, bfloat16, float16 keep their values, int8
/// (kChar) stands for kInt8.
WeightFormat weight_format(at::ScalarType dtype);
/// The inverse.
at::ScalarType scalar_type(WeightFormat format);
/// "float32", "int8", "Q4_1", ...
const char* format_name(WeightFormat format);

/// A linear layer as the forward runs it: out = input * weight^T + bias, with the weight laid out
/// for the kernels in panels of 32 outputs (on other devices than the CPU: as it is). Immutable
/// once it is filled; copies share the memory.
///
/// Every output is summed over its inputs in their order, each product and sum rounded once (fused
/// multiply-add; for int8 activations see BlockProduct), on every instruction set: a row's result
/// depends, bit for bit, neither on the rows beside it nor on threads or the processor. So a draft
/// that is verified in one forward gets the logits that plain decoding gets.
class Linear {
 public:
  /// None.
  Linear() = default;
  /// Packs weight [out, in] of any floating dtype, converted to `format`.
  Linear(const Tensor& weight, WeightFormat format, const Tensor& bias = {});
  /// Zeros, to be filled by set_rows while weights are loaded.
  Linear(int64_t out, int64_t in, WeightFormat format, at::Device device);

  /// What inputs are rounded to before they are multiplied; int8 takes weights in blocks.
  void set_activations(ActivationFormat activations);
  /// Packs weight [rows, in] as outputs first .. first + rows - 1.
  void set_rows(int64_t first, const Tensor& weight);
  /// Writes one output from its blocks as they lie in a GGUF file.
  void set_stored_row(int64_t output, const std::byte* blocks);
  /// bias [out], of any floating dtype.
  void set_bias(const Tensor& bias);

  bool defined() const { return packed_.defined(); }
  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  WeightFormat format() const { return format_; }
  ActivationFormat activations() const { return activations_; }
  /// Of inputs and outputs: float64 for float64 weights, else float32.
  at::ScalarType compute_dtype() const;
  at::Device device() const { return packed_.device(); }
  /// Memory of the packed weight.
  int64_t bytes() const { return static_cast<int64_t>(packed_.nbytes()); }

  /// input [n, in] -> out [n, out]; both contiguous, of compute_dtype.
  void apply(const Tensor& input, Tensor& out) const;
  /// The same into a new tensor.
  Tensor apply(const Tensor& input) const;
  /// Rows of the weight, as a tied embedding looks them up: ids [n] int32 or int64 -> [n, in] of
  /// compute_dtype. Ids lie in 0 .. out - 1.
  Tensor rows(const Tensor& ids) const;
  /// The weight [out, in] as it is multiplied, in the format's dtype (int8: float32).
  Tensor unpack() const;

 private:
  int64_t in_ = 0;
  int64_t out_ = 0;
  WeightFormat format_ = WeightFormat::kFloat32;
  ActivationFormat activations_ = ActivationFormat::kFloat32;
  Tensor packed_;  ///< CPU: see empty_panels; other devices: [out, in]
  Tensor bias_;    ///< [out] of compute_dtype, or undefined
};

}  // namespace specdec
