#pragma once
#include <ATen/core/Tensor.h>

namespace specdec {

using at::Tensor;

// Parallel residual streams (AltUp: Baykal et al., 2023, arXiv:2301.13310, as Gemma 3n has them).
// Streams are [streams, n, hidden]; all operands contiguous, all float32 or all float64.

/// How a layer weighs the streams of a token.
struct AltUpRouter {
  Tensor weight;     ///< [streams, hidden]
  Tensor norm;       ///< [hidden] of its input, 1 / hidden included
  double eps = 0.0;  ///< of the norm
};

/// out [n, streams] = tanh(weight * rms_norm(input)), for input [n, hidden].
void altup_route(const Tensor& input, const AltUpRouter& router, Tensor& out);

/// Predicts all streams before a layer: out_p = stream_p + sum over q of R[p][q] * stream_q, where
/// R = coefficients [streams * streams, streams] * routes, row-major. routes: [n, streams].
void altup_predict(const Tensor& streams, const Tensor& routes, const Tensor& coefficients,
                   Tensor& out);

/// Corrects the predictions, in place, by what the layer made of the active one: stream_p += c_p *
/// (activated - stream_active), c = coefficients [streams, streams] * routes + 1. activated: [n,
/// hidden].
void altup_correct(const Tensor& activated, const Tensor& routes, const Tensor& coefficients,
                   int64_t active, Tensor& streams);

/// Gives each row of values [n, hidden], in place, the root mean square of that row of `like`.
void match_rms(const Tensor& like, Tensor& values);

/// out [n, hidden] = the mean of the streams.
void mean_stream(const Tensor& streams, Tensor& out);

}  // namespace specdec
