#include <fmt/format.h>

#include "core/error.h"
#include "core/kernels/cuda/cuda_copy_queue.h"
#include "core/kernels/cuda/cuda_ops.h"

namespace specdec {

std::shared_ptr<Ops> device_ops(at::Device device) {
  if (!device.is_cpu() && !device.is_cuda()) {
    throw Error(fmt::format("decoding runs on the CPU and on CUDA, not on {}; use device: cpu",
                            device.str()));
  }
  return device.is_cpu() ? cpu_ops() : cuda_ops(device);
}

std::shared_ptr<CopyQueue> device_copies(at::Device device) {
  if (!device.is_cpu() && !device.is_cuda()) {
    throw Error(
        fmt::format("copies beside a computation are made on CUDA, not on {}", device.str()));
  }
  return device.is_cpu() ? nullptr : cuda_copy_queue(device);
}

}  // namespace specdec
