#pragma once
#include <ATen/core/Tensor.h>

namespace specdec {

/// The decay of RecurrenceTensors, [channels], of what checkpoints hold of it (recurrent_param; De
/// et al., 2024, arXiv:2402.19427, equation 4): -8 softplus(parameter), below 0 for every
/// parameter, so the parameter is what is trained. Differentiable.
at::Tensor decay_of_parameter(const at::Tensor& parameter);
/// The parameter of a decay: the inverse of decay_of_parameter.
at::Tensor parameter_of_decay(const at::Tensor& decay);

}  // namespace specdec
