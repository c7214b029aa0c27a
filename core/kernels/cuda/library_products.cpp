#include "core/kernels/cuda/library_products.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/cuda/run_kernel.h"
#include "core/kernels/cuda/unpack_kernel.h"

namespace specdec::cuda {

static Tensor unpack(const Linear::Part& part, int64_t in, at::Device device) {
  Tensor rows = at::empty({part.out, in}, at::TensorOptions(at::kBFloat16).device(device));
  run_kernel(device, "unpack_fragments", specdec_cuda_unpack_fragments,
             {part.packed.const_data_ptr(),
              reinterpret_cast<uint16_t*>(rows.mutable_data_ptr<at::BFloat16>()), narrow(part.out),
              narrow(in), kernel_format(part.format)});
  return rows;
}

/// [n, out] float32 = inputs [n, in] * weight [out, in]^T, both bfloat16. LibTorch's CPU has no
/// such product, but the same one of float32 numbers.
static Tensor parts_times(const Tensor& inputs, const Tensor& weight) {
  return inputs.is_cuda() ? at::mm(inputs, weight.t(), at::kFloat)
                          : at::mm(inputs.to(at::kFloat), weight.to(at::kFloat).t());
}

void library_product(const Linear& weight, const Linear::Part& part, const Tensor& input,
                     Tensor& out) {
  const c10::InferenceMode inference;  // `out` may be made in it
  const Tensor first = input.to(at::kBFloat16);
  const Tensor inputs = at::cat({first, (input - first).to(at::kBFloat16)});
  const Tensor sums = parts_times(inputs, unpack(part, weight.in(), input.device()));
  Tensor columns = out.narrow(1, part.first, part.out);
  at::add_out(columns, sums.narrow(0, 0, input.size(0)),
              sums.narrow(0, input.size(0), input.size(0)));
  if (weight.bias().defined()) {
    columns.add_(weight.bias().narrow(0, part.first, part.out));
  }
}

}  // namespace specdec::cuda
