#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/memory_tensors.h"

namespace specdec {

/// A tensor of a checkpoint that a test makes up.
struct OwnedTensor {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
using OwnedTensors = std::map<std::string, OwnedTensor>;

inline OwnedTensor zeros_of(DType dtype, std::vector<int64_t> shape) {
  int64_t size = dtype_bytes(dtype);
  for (const int64_t side : shape) {
    size *= side;
  }
  return {dtype, std::move(shape), std::vector<std::byte>(static_cast<size_t>(size))};
}

/// The tensors as those of a folder called "folder"; borrows their bytes.
inline std::shared_ptr<MemoryTensors> in_memory(const OwnedTensors& tensors) {
  auto memory = std::make_shared<MemoryTensors>("folder");
  for (const auto& [name, tensor] : tensors) {
    memory->add(
        {.name = name, .dtype = tensor.dtype, .shape = tensor.shape, .bytes = tensor.bytes});
  }
  return memory;
}

}  // namespace specdec
