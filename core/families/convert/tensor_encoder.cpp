#include "core/families/convert/tensor_encoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <vector>

#include "core/error.h"
#include "core/formats/gguf/gguf_quantize.h"

namespace specdec {
namespace {

at::ScalarType plain_type(DType dtype) {
  return dtype == DType::kF16 ? at::kHalf : dtype == DType::kBF16 ? at::kBFloat16 : at::kFloat;
}

void check_finite(const at::Tensor& values, const at::Tensor& encoded, DType dtype,
                  const std::string& name) {
  if (!at::isfinite(encoded).all().item<bool>()) {
    throw WeightsError(fmt::format(
        "tensor '{}' holds {}, more than {} can hold. Choose --dtype bfloat16 or float32.", name,
        values.abs().max().item<double>(), dtype_name(dtype)));
  }
}

}  // namespace

void encode_rows(const at::Tensor& rows, DType dtype, const std::string& name,
                 const std::function<void(std::span<const std::byte>)>& write) {
  const at::Tensor encoded = rows.to(plain_type(dtype)).contiguous();
  check_finite(rows, encoded, dtype, name);
  if (!is_block(dtype)) {
    const auto* bytes = static_cast<const std::byte*>(encoded.const_data_ptr());
    write({bytes, static_cast<size_t>(encoded.nbytes())});
    return;
  }
  SPECDEC_CHECK(dtype == DType::kQ80, "encode_rows: {} is not written", dtype_name(dtype));
  std::vector<std::byte> blocks(
      static_cast<size_t>(encoded.numel() / block_values(dtype) * dtype_bytes(dtype)));
  quantize_q8_0(encoded.const_data_ptr<float>(), encoded.numel(), blocks.data());
  write(blocks);
}

bool is_exact(const at::Tensor& values, DType dtype) {
  return at::equal(values.to(plain_type(dtype)).to(values.scalar_type()), values);
}

at::Tensor interleaved_rows(const at::Tensor& rows, int64_t head_dim) {
  const int64_t heads = rows.size(0) / head_dim;
  return rows.reshape({heads, 2, head_dim / 2, -1}).transpose(1, 2).reshape(rows.sizes());
}

}  // namespace specdec
