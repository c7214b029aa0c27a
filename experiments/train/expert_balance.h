#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace specdec {

/// The load balancing loss of mixtures of experts (Fedus et al., 2022, arXiv:2101.03961, eq. 4):
/// the mean over layers of count * sum over experts of their share of the choices * their mean
/// probability; 1 where both are even. `router_probs` [rows, T, count] of each layer, at least one;
/// a token chooses the `chosen` likeliest. The gradient is that of the probabilities.
at::Tensor expert_balance_loss(std::span<const at::Tensor> router_probs, int64_t chosen);

}  // namespace specdec
