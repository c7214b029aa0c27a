#include <fmt/format.h>

#include "core/error.h"
#include "core/kernels/copy_queue.h"
#include "core/kernels/metal/metal_ops.h"

namespace specdec {

std::shared_ptr<Ops> device_ops(at::Device device) {
  if (!device.is_cpu() && !device.is_mps()) {
    throw Error(fmt::format("this build decodes on the CPU and on mps, not on {}; use device: cpu",
                            device.str()));
  }
  return device.is_cpu() ? cpu_ops() : mps_ops(device);
}

std::shared_ptr<CopyQueue> device_copies(at::Device device) {
  if (!device.is_cpu()) {
    throw Error(
        fmt::format("copies beside a computation are made on CUDA, not on {}", device.str()));
  }
  return nullptr;
}

}  // namespace specdec
