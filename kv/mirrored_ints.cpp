#include "kv/mirrored_ints.h"

#include <ATen/ATen.h>

#include <cstring>

#include "core/kernels/staged_upload.h"

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
  specdec::upload(written, device_.narrow(0, begin, numbers));
}

}  // namespace specdec
