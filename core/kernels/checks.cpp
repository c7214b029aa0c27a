#include "core/kernels/checks.h"

namespace specdec {

void check_cpu(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) {
    throw Error(fmt::format("kernels for device {} are not built yet; use --device cpu",
                            tensor.device().str()));
  }
}

}  // namespace specdec
