#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/formats/safetensors.h"

namespace specdec {

using at::Tensor;

/// Collects a checkpoint's tensors under their names and writes them to one .safetensors file.
class TensorWriter {
 public:
  /// `dtype`: of the stored floating-point tensors: float32, bfloat16 or float64.
  explicit TensorWriter(at::ScalarType dtype);

  /// A copy, converted when it is floating-point; int64 and bool are kept.
  void add(const std::string& name, const Tensor& tensor);
  void write(const std::filesystem::path& path,
             const std::map<std::string, std::string>& metadata = {}) const;

 private:
  at::ScalarType dtype_;
  std::vector<Tensor> kept_;
  std::vector<TensorToWrite> list_;
};

}  // namespace specdec
