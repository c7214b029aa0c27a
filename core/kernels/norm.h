#pragma once
#include <ATen/core/Tensor.h>

namespace specdec {

using at::Tensor;

/// RMSNorm (Zhang & Sennrich, 2019) with the scale as multiplied: Gemma 1 to 3 store w and mean
/// 1 + w, which is added once at load. out = input * (mean(input^2) + eps)^-1/2 * scale.
/// input, out: [n, size], contiguous, float32 or float64; scale: [size], same dtype.
void rms_norm(const Tensor& input, const Tensor& scale, double eps, Tensor& out);

/// residual += rms_norm(input), in place: Gemma's norms after attention and MLP.
void add_rms_norm(Tensor& residual, const Tensor& input, const Tensor& scale, double eps);

}  // namespace specdec
