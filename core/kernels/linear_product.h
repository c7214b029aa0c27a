#pragma once
#include "core/kernels/linear.h"
#include "core/kernels/row_range.h"

namespace specdec {

// Products with a Linear on the CPU, whose weight lies in panels.
//
// Every output is summed over its inputs in their order, each product and sum rounded once (fused
// multiply-add; for int8 activations see BlockProduct), on every instruction set: a row's result
// depends, bit for bit, neither on the rows beside it nor on threads or the processor. So a draft
// that is verified in one forward gets the logits that plain decoding gets.

/// out [n, out] = input [n, in] * weight^T + bias; both contiguous, of weight.compute_dtype().
/// Allocates nothing once a product of this size was computed.
void linear_product(const Linear& weight, const Tensor& input, Tensor& out);
/// The same for some of the rows; the others of `out` stay as they are.
void linear_product(const Linear& weight, const Tensor& input, const RowRange& rows, Tensor& out);
/// The same into a new tensor.
Tensor linear_product(const Linear& weight, const Tensor& input);

}  // namespace specdec
