#pragma once
#include <memory>
#include <vector>

#include "core/kernels/metal/kernel_queue.h"
#include "core/kernels/metal/sizes.h"

namespace specdec::mps {

/// Throws InternalError for a size that is negative or has more than 31 bits.
int32_t int_of(int64_t number);
/// Groups that take `share` elements each.
uint32_t groups_of(int64_t elements, int64_t share);
/// Rows of a tensor whose last dimension is a row.
int64_t count_of_rows(const at::Tensor& tensor);
/// Memory of a group that adds up `sums` numbers of each of its threads.
uint32_t reduction_bytes(int64_t sums, int64_t threads);

/// A run of the kernel whose name is `kernel` with `format` behind it.
KernelLaunch launch_of(const char* source, const char* kernel, const char* format);
/// A run of a kernel whose groups take a row each.
KernelLaunch row_launch(const char* source, const char* kernel, int64_t rows);

/// Runs kernels on the tensors of a device, one after the other, and owns their workspace.
class MetalLauncher {
 public:
  MetalLauncher(at::Device device, std::unique_ptr<KernelQueue> queue)
      : device_(device), queue_(std::move(queue)) {}

  at::Device device() const { return device_; }

  /// A tensor as kernels read it. Throws InternalError for one that is not contiguous float32 on
  /// the device.
  KernelArray plain(const at::Tensor& tensor) const;

  /// Runs a launch; nothing where it has no groups.
  template <class Sizes>
  void run(KernelLaunch& launch, const Sizes& sizes) const {
    if (launch.groups[0] == 0 || launch.groups[1] == 0 || launch.groups[2] == 0) {
      return;
    }
    launch.sizes = &sizes;
    launch.sizes_bytes = sizeof(Sizes);
    queue_->run(launch);
  }

  /// Runs a kernel whose threads take an element each.
  template <class Sizes>
  void elements(const char* kernel, std::vector<KernelArray> arrays, int64_t count,
                const Sizes& sizes, const char* source = "elementwise") const {
    KernelLaunch launch = launch_of(source, kernel, "");
    launch.arrays = std::move(arrays);
    launch.groups[0] = groups_of(count, kElementThreads);
    launch.threads = kElementThreads;
    run(launch, sizes);
  }

  /// Memory of at least so many numbers, of any content, until the next call. It grows to at least
  /// twice its size.
  at::Tensor workspace(int64_t numbers);

 private:
  at::Device device_;
  std::unique_ptr<KernelQueue> queue_;
  at::Tensor workspace_;
};

}  // namespace specdec::mps
