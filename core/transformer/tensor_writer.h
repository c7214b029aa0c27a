#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/formats/safetensors.h"

namespace specdec {

using at::Tensor;

/// Collects a checkpoint's tensors under their names and writes them to one .safetensors file.
class TensorWriter {
 public:
  /// `dtype`: of the stored floating-point tensors: float32, bfloat16, float64, or kChar: matrices
  /// as int8 codes with scales (see kInt8Inputs), where the rows allow it, all else as bfloat16.
  /// `stored_name`: of a tensor that is added under another name, where a family has its own.
  explicit TensorWriter(at::ScalarType dtype,
                        std::function<std::string(const std::string&)> stored_name = {});

  /// A copy, converted when it is floating-point; int64 and bool are kept.
  void add(const std::string& name, const Tensor& tensor);
  void write(const std::filesystem::path& path,
             const std::map<std::string, std::string>& metadata = {}) const;

 private:
  void add_stored(const std::string& name, const Tensor& tensor);
  void add_int8(const std::string& name, const Tensor& matrix);

  at::ScalarType dtype_;
  std::function<std::string(const std::string&)> stored_name_;
  std::vector<Tensor> kept_;
  std::vector<TensorToWrite> list_;
};

}  // namespace specdec
