#include "experiments/components/device_choice.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "core/error.h"
#include "core/kernels/ops.h"

namespace specdec {
namespace {

/// What is missing where no CUDA device can be used: of the build, or of the machine.
const char* missing_cuda() {
  try {
    (void)device_ops(at::Device(at::kCUDA));
  } catch (const Error&) {
    return "this build has no CUDA kernels, since it was made without nvcc";
  } catch (const std::exception&) {
    // LibTorch finds no device, which is known.
  }
  return at::Context::hasCUDART() ? "this machine has no CUDA device, or no driver for it"
                                  : "this build has a LibTorch without CUDA";
}

/// Throws ConfigError for a device of a kind that this build or machine does not have.
void check_has(const std::string& device) {
  if (device == "mps" && !at::hasMPS()) {
    utsname system{};
    const bool mac = ::uname(&system) == 0 && std::string(system.sysname) == "Darwin";
    throw ConfigError(fmt::format(
        "device 'mps' is an Apple GPU: it needs macOS on Apple silicon{}; use cpu",
        mac ? " and a PyTorch with MPS" : fmt::format(", and this is {}", system.sysname)));
  }
  if (device != "mps" && !at::hasCUDA()) {
    throw ConfigError(fmt::format(
        "device '{}': {}; use cpu ('specdec inspect' counts a GPU's memory without one)", device,
        missing_cuda()));
  }
}

/// "cuda", or "cuda:" and a number of one or two digits.
bool is_cuda_name(const std::string& name) {
  constexpr size_t kPrefix = 5;
  return name == "cuda" ||
         (name.rfind("cuda:", 0) == 0 && name.size() > kPrefix && name.size() <= kPrefix + 2 &&
          name.find_first_not_of("0123456789", kPrefix) == std::string::npos);
}

}  // namespace

at::Device parse_device(const std::string& name) {
  if (name == "cpu") {
    return at::kCPU;
  }
  if (name != "mps" && !is_cuda_name(name)) {
    throw ConfigError(fmt::format("unknown device '{}'; known: cpu, cuda, cuda:N, mps", name));
  }
  check_has(name);
  try {
    const at::Device device(name);
    (void)at::empty({1}, at::TensorOptions().device(device));
    return device;
  } catch (const c10::Error& error) {
    throw ConfigError(
        fmt::format("device '{}' cannot be used: {}", name, error.what_without_backtrace()));
  }
}

std::string gpu_name(const at::Device& device) {
  if (device.is_cpu()) {
    return "none";
  }
  std::error_code failure;
  // The driver's own list: asking CUDA would need headers that a CPU build does not have.
  for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", failure)) {
    std::ifstream file(gpu.path() / "information");
    std::string line;
    while (std::getline(file, line)) {
      const size_t begin = line.find_first_not_of(" \t", std::string("Model:").size());
      if (line.rfind("Model:", 0) == 0 && begin != std::string::npos) {
        return line.substr(begin);
      }
    }
  }
  return "unknown";
}

}  // namespace specdec
