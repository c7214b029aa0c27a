#include "core/kernels/cuda/growing_memory.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace specdec::cuda {

float* GrowingMemory::reserve(int64_t numbers) {
  if (!has_room(numbers)) {
    const int64_t twice = tensor_.defined() ? 2 * tensor_.numel() : 0;
    tensor_ = at::Tensor();  // before the new one is taken
    tensor_ = at::empty({std::max(numbers, twice)}, at::TensorOptions(at::kFloat).device(device_));
  }
  return tensor_.mutable_data_ptr<float>();
}

}  // namespace specdec::cuda
