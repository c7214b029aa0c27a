#pragma once
#include <ATen/core/Tensor.h>

namespace specdec {

using at::Tensor;

/// Input rows are worked through in blocks of so many. In and across blocks every dot product is
/// summed in the same order: the result of a row does not depend on the others, bit for bit, so a
/// draft verified in one forward gets the logits that plain decoding gets.
inline constexpr int64_t kRowInvariantRows = 64;

/// out = input * weight^T. input [n, in] float32 or float64; weight [out, in] float32, float64,
/// bfloat16 or float16 (widened on the fly); out [n, out], of input's dtype. All contiguous.
void linear(const Tensor& input, const Tensor& weight, Tensor& out);

/// The same into a new tensor.
Tensor product(const Tensor& input, const Tensor& weight);

}  // namespace specdec
