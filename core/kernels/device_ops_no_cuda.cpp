#include <fmt/format.h>

#include "core/error.h"
#include "core/kernels/copy_queue.h"
#include "core/kernels/ops.h"

namespace specdec {

std::shared_ptr<Ops> device_ops(at::Device device) {
  if (!device.is_cpu()) {
    throw Error(
        fmt::format("this build decodes on the CPU only, not on {}: it was made without nvcc; use "
                    "device: cpu",
                    device.str()));
  }
  return cpu_ops();
}

std::shared_ptr<CopyQueue> device_copies(at::Device device) {
  if (!device.is_cpu()) {
    throw Error(fmt::format(
        "copies beside a computation are made on CUDA, not on {}: this build was made without nvcc",
        device.str()));
  }
  return nullptr;
}

}  // namespace specdec
