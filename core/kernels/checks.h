#pragma once
#include <ATen/core/Tensor.h>

#include "core/error.h"

namespace specdec {

/// A user can ask for a device that the kernels do not serve yet: an Error, not a bug.
void check_cpu(const at::Tensor& tensor);

/// Whether a kernel of the CPU can read it as a plain array.
inline bool is_plain(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == dtype &&
         tensor.is_contiguous();
}

inline bool is_float_or_double(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
}

}  // namespace specdec
