#include "core/kernels/soft_cap.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/kernels/checks.h"

#define SPECDEC_SIMD_BODY "core/kernels/soft_cap_simd.h"
#include "core/kernels/for_each_simd.h"

namespace specdec {
namespace {

constexpr int64_t kParallelValues = 16384;  // fewer are capped before a second thread wakes

template <class T>
void run(Tensor& values, double cap) {
  T* data = values.mutable_data_ptr<T>();
  at::parallel_for(0, values.numel(), kParallelValues, [&](int64_t begin, int64_t end) {
    SPECDEC_SIMD_CALL(cap_values, data + begin, end - begin, static_cast<T>(cap));
  });
}

}  // namespace

void soft_cap(Tensor& values, double cap) {
  check_cpu(values);
  SPECDEC_CHECK(is_float_or_double(values) && is_plain(values, values.scalar_type()) && cap > 0.0,
                "soft_cap: values should be contiguous float32 or float64, the cap positive");
  if (values.scalar_type() == at::kDouble) {
    run<double>(values, cap);
  } else {
    run<float>(values, cap);
  }
}

}  // namespace specdec
