#include "core/kernels/cuda/cuda_arguments.h"

#include <limits>

#include "core/error.h"

namespace specdec::cuda {

int32_t narrow(int64_t number) {
  SPECDEC_CHECK(number >= 0 && number <= std::numeric_limits<int32_t>::max(), "size {}", number);
  return static_cast<int32_t>(number);
}

WeightFormat kernel_format(WeightFormat format) {
  if (format == WeightFormat::kFloat64) {
    throw Error("float64 weights run on the CPU only; use device: cpu, or dtype: float32");
  }
  return format;
}

const float* floats(const at::Tensor& tensor) {
  // Not is_plain: that asks for the host's memory, and where this one lies, the kernel's errors
  // say.
  SPECDEC_CHECK(tensor.defined() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous(),
                "CUDA: an operand is not contiguous float32");
  return tensor.const_data_ptr<float>();
}

float* floats_of(at::Tensor& tensor) { return const_cast<float*>(floats(tensor)); }

const float* floats_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? floats(tensor) : nullptr;
}

const int32_t* integers(const at::Tensor& tensor) { return tensor.const_data_ptr<int32_t>(); }

int64_t rows_of(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.numel() / tensor.size(-1);
}

}  // namespace specdec::cuda
