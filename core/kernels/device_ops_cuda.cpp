#include <fmt/format.h>

#include "core/error.h"
#include "core/kernels/cuda/cuda_ops.h"

namespace specdec {

std::shared_ptr<Ops> device_ops(at::Device device) {
  if (!device.is_cpu() && !device.is_cuda()) {
    throw Error(fmt::format("decoding runs on the CPU and on CUDA, not on {}; use device: cpu",
                            device.str()));
  }
  return device.is_cpu() ? cpu_ops() : cuda_ops(device);
}

}  // namespace specdec
