#include "core/transformer/decay_parameter.h"

#include <ATen/ATen.h>

namespace specdec {
namespace {

constexpr double kDecayFactor = -8.0;  // -c of the paper

}  // namespace

at::Tensor decay_of_parameter(const at::Tensor& parameter) {
  return at::softplus(parameter) * kDecayFactor;
}

at::Tensor parameter_of_decay(const at::Tensor& decay) {
  const at::Tensor positive = decay / kDecayFactor;
  return positive + at::log(-at::expm1(-positive));
}

}  // namespace specdec
