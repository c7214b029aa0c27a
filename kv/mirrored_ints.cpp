#include "kv/mirrored_ints.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <cstring>

namespace specdec {

void MirroredInts::allocate(int64_t numbers) {
  const auto ints = at::TensorOptions().dtype(at::kInt);
  const Tensor host = at::zeros({numbers}, ints);
  device_ = is_twice() ? at::zeros({numbers}, ints.device(place_)) : host;
  host_ = host;
}

void MirroredInts::upload(int64_t numbers, int64_t begin) const {
  if (!is_twice() || numbers == 0) {
    return;
  }
  const auto bytes = static_cast<size_t>(numbers) * sizeof(int32_t);
  const auto* written = host_.const_data_ptr<int32_t>() + begin;
  if (place_.is_cpu()) {
    std::memcpy(device_.mutable_data_ptr<int32_t>() + begin, written, bytes);
    return;
  }
  // Blocks made in inference mode may not be written outside of it.
  const c10::InferenceMode inference;
  const Tensor device = device_.narrow(0, begin, numbers);
  if (!place_.is_cuda()) {
    device.copy_(host_.narrow(0, begin, numbers));
    return;
  }
  // From pinned memory that LibTorch keeps until it is copied: the host waits for no forward, and
  // may write at once.
  const Tensor staged = at::empty({numbers}, host_.options().pinned_memory(true));
  std::memcpy(staged.mutable_data_ptr(), written, bytes);
  device.copy_(staged, /*non_blocking=*/true);
}

}  // namespace specdec
