#include "core/kernels/metal/metal_launcher.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace specdec::mps {

int32_t int_of(int64_t number) {
  SPECDEC_CHECK(number >= 0 && number <= std::numeric_limits<int32_t>::max(), "size {}", number);
  return static_cast<int32_t>(number);
}

uint32_t groups_of(int64_t elements, int64_t share) {
  return static_cast<uint32_t>(int_of((elements + share - 1) / share));
}

int64_t count_of_rows(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.numel() / tensor.size(-1);
}

uint32_t reduction_bytes(int64_t sums, int64_t threads) {
  return static_cast<uint32_t>(sums * (threads / kSimdThreads)) *
         static_cast<uint32_t>(sizeof(float));
}

KernelLaunch launch_of(const char* source, const char* kernel, const char* format) {
  KernelLaunch launch;
  launch.source = source;
  launch.kernel = std::string(kernel) + format;
  return launch;
}

KernelLaunch row_launch(const char* source, const char* kernel, int64_t rows) {
  KernelLaunch launch = launch_of(source, kernel, "");
  launch.groups[0] = groups_of(rows, 1);
  launch.threads = kRowThreads;
  launch.group_bytes = reduction_bytes(1, kRowThreads);
  return launch;
}

KernelArray MetalLauncher::plain(const at::Tensor& tensor) const {
  SPECDEC_CHECK(tensor.defined() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
                    tensor.device().type() == device_.type(),
                "Metal: an operand is not contiguous float32 on {}", device_.str());
  return {tensor};
}

at::Tensor MetalLauncher::workspace(int64_t numbers) {
  if (!workspace_.defined() || workspace_.numel() < numbers) {
    const int64_t twice = workspace_.defined() ? 2 * workspace_.numel() : 0;
    workspace_ = at::Tensor();  // before the new one is taken
    workspace_ =
        at::empty({std::max(numbers, twice)}, at::TensorOptions(at::kFloat).device(device_));
  }
  return workspace_;
}

}  // namespace specdec::mps
