#include "core/kernels/geglu.h"

#include <ATen/ATen.h>

#include "core/kernels/checks.h"

namespace specdec {
namespace {

template <class T>
struct GegluTask {
  const T* gate_up;
  T* out;
  int64_t rows;
  int64_t size;
};

}  // namespace
}  // namespace specdec

#define SPECDEC_SIMD_BODY "core/kernels/geglu_simd.h"
#include "core/kernels/for_each_simd.h"

namespace specdec {
namespace {

template <class T>
void run(const Tensor& gate_up, const Tensor& out) {
  const GegluTask<T> task{gate_up.const_data_ptr<T>(), out.mutable_data_ptr<T>(), out.size(0),
                          out.size(1)};
  SPECDEC_SIMD_CALL(geglu_rows, task);
}

}  // namespace

void geglu(const Tensor& gate_up, Tensor& out) {
  check_cpu(gate_up);
  SPECDEC_CHECK(is_float_or_double(gate_up) && is_plain(gate_up, gate_up.scalar_type()) &&
                    is_plain(out, gate_up.scalar_type()),
                "geglu: operands should be contiguous, both float32 or both float64");
  SPECDEC_CHECK(gate_up.dim() == 2 && out.dim() == 2 && gate_up.size(0) == out.size(0) &&
                    gate_up.size(1) == 2 * out.size(1),
                "geglu: gate_up should be [n, 2 * size], out [n, size]");
  if (gate_up.scalar_type() == at::kDouble) {
    run<double>(gate_up, out);
  } else {
    run<float>(gate_up, out);
  }
}

}  // namespace specdec
