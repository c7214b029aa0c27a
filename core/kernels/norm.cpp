#include "core/kernels/norm.h"

#include <ATen/ATen.h>

#include "core/kernels/checks.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

template <class T>
struct NormTask {
  const T* input;
  const T* scale;
  T* out;
  int64_t rows;
  int64_t size;
  T eps;
};

}  // namespace
}  // namespace specdec

#define SPECDEC_SIMD_BODY "core/kernels/simd/norm_simd.h"
#include "core/kernels/simd/for_each_simd.h"

namespace specdec {
namespace {

constexpr double kNanosecondsPerNumber = 0.3;

template <bool kAdd, class T>
void run(const NormTask<T>& task) {
  const int64_t grain =
      tile_grain(task.rows, kNanosecondsPerNumber * static_cast<double>(task.size));
  parallel_tiles(task.rows, grain, [&](int64_t begin, int64_t end) {
    SPECDEC_SIMD_CALL(norm_rows<kAdd>, task, begin, end);
  });
}

template <class T>
NormTask<T> task_of(const Tensor& input, const Tensor& scale, double eps, const Tensor& out) {
  return {input.const_data_ptr<T>(),
          scale.const_data_ptr<T>(),
          out.mutable_data_ptr<T>(),
          input.size(0),
          input.size(1),
          static_cast<T>(eps)};
}

void check(const Tensor& input, const Tensor& scale, const Tensor& out) {
  check_cpu(input);
  SPECDEC_CHECK(is_float_or_double(input) && is_plain(input, input.scalar_type()) &&
                    is_plain(scale, input.scalar_type()) && is_plain(out, input.scalar_type()),
                "rms_norm: operands should be contiguous, all float32 or all float64");
  SPECDEC_CHECK(input.dim() == 2 && scale.dim() == 1 && out.dim() == 2 &&
                    scale.size(0) == input.size(1) && out.sizes() == input.sizes(),
                "rms_norm: input and out should be [n, size], scale [size]");
}

template <bool kAdd>
void dispatch(const Tensor& input, const Tensor& scale, double eps, const Tensor& out) {
  check(input, scale, out);
  if (input.scalar_type() == at::kDouble) {
    run<kAdd>(task_of<double>(input, scale, eps, out));
  } else {
    run<kAdd>(task_of<float>(input, scale, eps, out));
  }
}

}  // namespace

void rms_norm(const Tensor& input, const Tensor& scale, double eps, Tensor& out) {
  dispatch<false>(input, scale, eps, out);
}

void add_rms_norm(Tensor& residual, const Tensor& input, const Tensor& scale, double eps) {
  dispatch<true>(input, scale, eps, residual);
}

}  // namespace specdec
