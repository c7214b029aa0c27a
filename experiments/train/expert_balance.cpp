#include "experiments/train/expert_balance.h"

#include <ATen/ATen.h>

#include "core/error.h"

namespace specdec {

at::Tensor expert_balance_loss(std::span<const at::Tensor> router_probs, int64_t chosen) {
  SPECDEC_CHECK(!router_probs.empty(), "no layer has experts");
  at::Tensor sum = at::zeros({}, router_probs.front().options());
  for (const at::Tensor& layer : router_probs) {
    const at::Tensor probs = layer.flatten(0, 1);
    const at::Tensor choices = at::one_hot(std::get<1>(probs.topk(chosen, -1)), probs.size(-1));
    const at::Tensor shares = choices.sum(-2).to(probs.dtype()).mean(0) / chosen;
    sum = sum + probs.size(-1) * (shares * probs.mean(0)).sum();
  }
  return sum / static_cast<int64_t>(router_probs.size());
}

}  // namespace specdec
