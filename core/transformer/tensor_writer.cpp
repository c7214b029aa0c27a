#include "core/transformer/tensor_writer.h"

#include <ATen/ATen.h>

#include "core/error.h"

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
    case at::kLong:
      return DType::kI64;
    case at::kBool:
      return DType::kBool;
    default:
      SPECDEC_CHECK(false, "tensors are written as float64, float32, bfloat16, int64 or bool");
  }
}

}  // namespace

TensorWriter::TensorWriter(at::ScalarType dtype) : dtype_(dtype) {}

void TensorWriter::add(const std::string& name, const Tensor& tensor) {
  const at::ScalarType type = tensor.is_floating_point() ? dtype_ : tensor.scalar_type();
  kept_.push_back(tensor.detach().to(at::kCPU, type).contiguous());
  const Tensor& stored = kept_.back();
  list_.push_back({name,
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
