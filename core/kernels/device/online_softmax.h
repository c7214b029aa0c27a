#pragma once
#include "core/kernels/device/portable.h"

namespace specdec::portable {

/// What some scores contribute to a softmax (Milakov and Gimelshein, 2018, arXiv:1805.02867).
struct SoftmaxPart {
  float largest;  ///< score; -infinity = nothing seen
  float total;    ///< sum of exp(score - largest)
};

SPECDEC_DEVICE SoftmaxPart nothing_seen() { return {minus_infinity(), 0.0F}; }

/// Two parts as one. A number mixed by the weights of the first part is multiplied by `first`, one
/// of the second by `second`.
struct SoftmaxMerge {
  SoftmaxPart part;
  float first, second;
};

SPECDEC_DEVICE SoftmaxMerge merge(SoftmaxPart first, SoftmaxPart second) {
  if (second.largest == minus_infinity()) {
    return {first, 1.0F, 0.0F};
  }
  if (first.largest == minus_infinity()) {
    return {second, 0.0F, 1.0F};
  }
  const float largest = first.largest > second.largest ? first.largest : second.largest;
  const float a = exponential(first.largest - largest);
  const float b = exponential(second.largest - largest);
  return {{largest, fused(second.total, b, rounded_product(first.total, a))}, a, b};
}

/// A mixed number of both parts. One of a part that saw nothing is not read: it may be NaN.
SPECDEC_DEVICE float merge_mixed(SoftmaxMerge factors, float first, float second) {
  if (factors.second == 0.0F) {
    return rounded_product(first, factors.first);
  }
  return factors.first == 0.0F
             ? rounded_product(second, factors.second)
             : fused(second, factors.second, rounded_product(first, factors.first));
}

/// Adds one score.
SPECDEC_DEVICE SoftmaxMerge update(SoftmaxPart part, float score) {
  return merge(part, {score, 1.0F});
}

}  // namespace specdec::portable
