#include "core/kernels/cuda/split_memory.h"

#include "core/kernels/cuda/kernels.h"

namespace specdec::cuda {

static int64_t split_numbers(int32_t rows, int32_t in) {
  return specdec_cuda_split_bytes(rows, in) / static_cast<int64_t>(sizeof(float));
}

bool SplitMemory::has_room(int32_t rows, int32_t in) const {
  return memory_.has_room(split_numbers(rows, in));
}

float* SplitMemory::reserve(int32_t rows, int32_t in) {
  return memory_.reserve(split_numbers(rows, in));
}

bool SplitMemory::holds(const at::Tensor& input, int64_t rows, int64_t in) const {
  return held_->tensor.defined() && held_->rows == rows && held_->in == in &&
         held_->tensor.const_data_ptr() == input.const_data_ptr();
}

}  // namespace specdec::cuda
