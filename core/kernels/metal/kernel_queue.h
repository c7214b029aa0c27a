#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace specdec::mps {

/// An array of a kernel: a tensor from its number `first` on; undefined for one that the kernel
/// does not read this time.
struct KernelArray {
  at::Tensor tensor;
  int64_t first = 0;
};

/// One run of a kernel of core/kernels/metal/. Its arguments are the arrays in their order, then
/// the sizes.
struct KernelLaunch {
  std::string source;  ///< "norm": of norm.metal
  std::string kernel;
  std::vector<KernelArray> arrays;
  const void* sizes = nullptr;  ///< a struct of sizes.h, read before run() returns
  size_t sizes_bytes = 0;
  std::array<uint32_t, 3> groups = {1, 1, 1};
  uint32_t threads = 1;      ///< of a group
  uint32_t group_bytes = 0;  ///< memory that a group's threads share
};

/// Memory that the threads of a group can share on every Apple GPU.
constexpr uint32_t kMaxGroupBytes = 32U << 10U;

/// Runs kernels one after the other, each when what came before is done.
class KernelQueue {
 public:
  virtual ~KernelQueue() = default;

  /// Returns before the kernel is done. Throws Error where the machine cannot run it.
  virtual void run(const KernelLaunch& launch) = 0;
};

}  // namespace specdec::mps
