#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/formats/tensor_file.h"

namespace specdec {

/// A file that torch.save has written of a dictionary of tensors (a state dict): pytorch_model.bin,
/// medusa_lm_head.pt, adapter_model.bin. Tensors lie in the mapped file; those whose values are not
/// in row-major order are copied. What torchao makes of several tensors stands there as these, with
/// metadata(), as in its safetensors files (core/formats/pickle/pickle_object.h). No code of the
/// file is run. Throws WeightsError naming file and tensor: another kind of file, one of PyTorch
/// before 1.6, other objects than tensors, a tensor that does not lie within its storage or has
/// more values than that, a damaged archive.
class PickledFile final : public TensorFile {
 public:
  explicit PickledFile(const std::filesystem::path& path);

 private:
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace specdec
