#include "core/kernels/staged_upload.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <cstring>

#include "core/error.h"

namespace specdec {

void upload(const void* numbers, const at::Tensor& to) {
  SPECDEC_CHECK(to.is_contiguous(), "numbers are uploaded to memory in pieces");
  if (to.numel() == 0) {
    return;
  }
  const c10::InferenceMode inference;  // where memory may have been taken
  const bool is_elsewhere = to.is_cuda();
  const at::Tensor staged =
      at::empty(to.sizes(), at::TensorOptions(to.scalar_type()).pinned_memory(is_elsewhere));
  std::memcpy(staged.mutable_data_ptr(), numbers, to.nbytes());
  to.copy_(staged, /*non_blocking=*/is_elsewhere);
}

at::Tensor uploaded(const at::Tensor& numbers, at::Device device) {
  SPECDEC_CHECK(!numbers.is_cpu() || numbers.is_contiguous(),
                "numbers are uploaded from memory in pieces");
  if (!numbers.is_cpu() || device.is_cpu()) {
    return numbers.to(device);
  }
  at::Tensor there = at::empty(numbers.sizes(), numbers.options().device(device));
  upload(numbers.const_data_ptr(), there);
  return there;
}

}  // namespace specdec
