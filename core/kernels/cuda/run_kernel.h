#pragma once
#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include "core/error.h"

namespace specdec::cuda {

/// Launches a kernel on a stream of a device; nullptr = its default one. Throws Error, naming the
/// op, when that fails.
template <class Task>
void run_kernel(at::Device device, const char* op, int (*kernel)(const Task*, void*),
                const Task& task, void* stream = nullptr) {
  const c10::OptionalDeviceGuard guard(device);
  if (const int error = kernel(&task, stream); error != 0) {
    throw Error(fmt::format("CUDA: {} failed with error {}{}", op, error,
                            error == 1 ? " (a shape that the kernel does not take)" : ""));
  }
}

}  // namespace specdec::cuda
