#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "core/token_probs.h"

namespace specdec {

/// Distributions of the rows of probabilities [rows, vocab] float64 that lie on a device and stay
/// as they are. The host reads all rows at once, when it first looks at one.
std::vector<TokenProbs> device_probs(const at::Tensor& rows);

/// Whether a distribution is one of device_probs.
bool is_on_device(const TokenProbs& probs);

/// The rows of some distributions, in order, where they are neighbours on a device: a part of that
/// tensor. Undefined where they are not.
at::Tensor rows_on_device(const std::vector<TokenProbs>& probs);

}  // namespace specdec
