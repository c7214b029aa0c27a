#include "core/transformer/tensor_writer.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"
#include "core/transformer/tensor_source.h"

namespace specdec {
namespace {

DType stored_type(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return DType::kF64;
    case at::kFloat:
      return DType::kF32;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kHalf:
      return DType::kF16;
    case at::kChar:
      return DType::kI8;
    case at::kLong:
      return DType::kI64;
    case at::kBool:
      return DType::kBool;
    default:
      SPECDEC_CHECK(false,
                    "tensors are written as float64, float32, bfloat16, int8, int64 or bool");
  }
}

}  // namespace

TensorWriter::TensorWriter(at::ScalarType dtype,
                           std::function<std::string(const std::string&)> stored_name)
    : dtype_(dtype), stored_name_(std::move(stored_name)) {}

void TensorWriter::add(const std::string& name, const Tensor& tensor) {
  if (!tensor.is_floating_point()) {
    add_stored(name, tensor);
  } else if (dtype_ != at::kChar) {
    add_stored(name, tensor.to(dtype_));
  } else if (tensor.dim() == 2 && tensor.size(1) % kInt8Inputs == 0) {
    add_int8(name, tensor.detach().to(at::kCPU, at::kFloat));
  } else {
    add_stored(name, tensor.to(at::kBFloat16));
  }
}

void TensorWriter::add_int8(const std::string& name, const Tensor& matrix) {
  constexpr double kLargest = 127.0;
  const Tensor blocks = matrix.unflatten(1, {-1, kInt8Inputs});
  const Tensor scales = (blocks.abs().amax(-1) / kLargest).to(at::kHalf);
  const Tensor divisors = scales.to(at::kFloat).clamp_min(1e-30).unsqueeze(-1);
  const Tensor codes = (blocks / divisors).round().clamp(-kLargest, kLargest);
  add_stored(name, codes.flatten(1).to(at::kChar));
  add_stored(name + ".scales", scales);
}

void TensorWriter::add_stored(const std::string& name, const Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  kept_.push_back(tensor.detach().to(at::kCPU).contiguous());
  const Tensor& stored = kept_.back();
  list_.push_back({stored_name_ ? stored_name_(name) : name,
                   stored_type(type),
                   stored.sizes().vec(),
                   {static_cast<const std::byte*>(stored.const_data_ptr()), stored.nbytes()}});
}

void TensorWriter::write(const std::filesystem::path& path,
                         const std::map<std::string, std::string>& metadata) const {
  std::map<std::string, std::string> all = metadata;
  all["format"] = "pt";
  write_safetensors(path, list_, all);
}

}  // namespace specdec
