#include "tests/core/kernels/metal/emulated_queue.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/kernels/metal/metal_ops.h"
#include "core/kernels/metal/sizes.h"
#include "tests/core/kernels/metal/emulated_kernel.h"

namespace specdec::mps {
namespace {

class EmulatedQueue final : public KernelQueue {
 public:
  explicit EmulatedQueue(std::vector<KernelLaunch>* launches) : launches_(launches) {}

  void run(const KernelLaunch& launch) override {
    const auto kernel = emulated_kernels().find(launch.source + "/" + launch.kernel);
    SPECDEC_CHECK(kernel != emulated_kernels().end(), "no kernel {} in {}.metal", launch.kernel,
                  launch.source);
    SPECDEC_CHECK(launch.threads % kSimdThreads == 0, "{}: {} threads", launch.kernel,
                  launch.threads);
    SPECDEC_CHECK(launch.group_bytes <= kMaxGroupBytes, "{}: {} bytes of a group's memory",
                  launch.kernel, launch.group_bytes);
    std::vector<unsigned char> sizes(
        static_cast<const unsigned char*>(launch.sizes),
        static_cast<const unsigned char*>(launch.sizes) + launch.sizes_bytes);
    EmulatedArguments arguments{.arrays = {}, .sizes = sizes.data()};
    for (const KernelArray& array : launch.arrays) {
      arguments.arrays.push_back(address(array));
    }
    if (launches_ != nullptr) {
      launches_->push_back(launch);
      launches_->back().sizes = nullptr;
    }
    cuda::LaunchShape shape;
    shape.grid_x = launch.groups[0];
    shape.grid_y = launch.groups[1];
    shape.grid_z = launch.groups[2];
    shape.threads = launch.threads;
    shape.shared_bytes = launch.group_bytes;
    cuda::emulation::run_grid(shape, [&] { kernel->second(arguments); });
  }

 private:
  static void* address(const KernelArray& array) {
    if (!array.tensor.defined()) {
      return nullptr;
    }
    return static_cast<unsigned char*>(array.tensor.mutable_data_ptr()) +
           array.first * static_cast<int64_t>(array.tensor.itemsize());
  }

  std::vector<KernelLaunch>* launches_;
};

}  // namespace

std::shared_ptr<Ops> emulated_metal_ops(std::vector<KernelLaunch>* launches) {
  return metal_ops(at::kCPU, std::make_unique<EmulatedQueue>(launches));
}

}  // namespace specdec::mps
