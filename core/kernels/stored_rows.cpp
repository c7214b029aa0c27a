#include "core/kernels/stored_rows.h"

#include <ATen/ATen.h>

#include <vector>

#include "core/formats/gguf/gguf_blocks.h"

namespace specdec {

at::ScalarType stored_scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return at::kDouble;
    case DType::kF32:
      return at::kFloat;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kI8:
      return at::kChar;
    case DType::kI32:
      return at::kInt;
    case DType::kBool:
      return at::kBool;
    default:
      break;
  }
  return at::kLong;
}

DType stored_dtype(WeightFormat format) {
  constexpr DType kTypes[] = {
      DType::kF64,       DType::kF32,      DType::kBF16,    DType::kF16,    DType::kQ80,
      DType::kQ40,       DType::kQ41,      DType::kQ50,     DType::kQ51,    DType::kQ2K,
      DType::kQ3K,       DType::kQ4K,      DType::kQ5K,     DType::kQ6K,    DType::kFp8x128,
      DType::kFp8x32,    DType::kInt4x128, DType::kInt4x32, DType::kIq1S,   DType::kIq1M,
      DType::kIq2Xxs,    DType::kIq2Xs,    DType::kIq2S,    DType::kIq3Xxs, DType::kIq3S,
      DType::kIq4Nl,     DType::kIq4Xs,    DType::kTq1,     DType::kTq2,    DType::kMxfp4,
      DType::kNvfp4,     DType::kFp4x16,   DType::kFp4x32,  DType::kNf4x32, DType::kAffine8x64,
      DType::kAffine4x32};
  return kTypes[static_cast<size_t>(format)];
}

at::Tensor mapped_tensor(const TensorEntry& entry) {
  auto* data = const_cast<std::byte*>(entry.bytes.data());
  return at::from_blob(data, entry.shape, at::TensorOptions(stored_scalar_type(entry.dtype)));
}

at::Tensor stored_rows(const TensorEntry& entry, int64_t first, int64_t count) {
  if (!is_block(entry.dtype)) {
    return mapped_tensor(entry).narrow(0, first, count);
  }
  std::vector<int64_t> shape = entry.shape;
  shape[0] = count;
  at::Tensor values = at::empty(shape, at::kFloat);
  const size_t row_bytes = entry.bytes.size() / static_cast<size_t>(entry.shape[0]);
  dequantize(entry.dtype, entry.bytes.data() + static_cast<size_t>(first) * row_bytes,
             values.numel(), values.mutable_data_ptr<float>());
  return values;
}

at::Tensor scaled_rows(const TensorEntry& codes, const TensorEntry& scales, int64_t first,
                       int64_t count) {
  const at::Tensor factors = mapped_tensor(scales).narrow(0, first, count).to(at::kFloat);
  const at::Tensor values = mapped_tensor(codes).narrow(0, first, count).to(at::kFloat);
  return (values.unflatten(1, {factors.size(1), -1}) * factors.unsqueeze(-1)).flatten(1);
}

at::Tensor deinterleaved(const at::Tensor& rows, int64_t group) {
  if (group <= 1) {
    return rows;
  }
  const int64_t groups = rows.size(0) / group;
  return rows.reshape({groups, group / 2, 2, -1}).transpose(1, 2).reshape(rows.sizes());
}

}  // namespace specdec
